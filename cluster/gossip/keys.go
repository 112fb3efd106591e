package gossip

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/hashicorp/memberlist"
)

const (
	makeKey     = "make one with openssl rand -base64 32"
	mostKeyFile = 64 << 10 // bytes
)

// ReadKeys reads keys from a file: one in each line, 16, 24 or 32 random bytes in base64. Empty lines, and those that begin with #, are passed over. The first key seals, all of them
// open. The error names all lines that are no key, and shows none of them.
func ReadKeys(file string) ([][]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("gossip keys: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, fmt.Errorf("gossip keys: %w", err)
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("gossip keys: %s is no file: name one that has a key in each line", file)
	}
	text, err := io.ReadAll(io.LimitReader(f, mostKeyFile+1))
	if err != nil {
		return nil, fmt.Errorf("gossip keys: %w", err)
	}
	if len(text) > mostKeyFile {
		return nil, fmt.Errorf("gossip keys: %s has more than %d bytes: it is no file of keys", file, mostKeyFile)
	}
	return decodeKeys(file, string(text))
}

func decodeKeys(file, text string) (keys [][]byte, err error) {
	var faults []error
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		switch {
		case err != nil: // which would show a part of the line
			faults = append(faults, fmt.Errorf("gossip keys: line %d of %s is not base64: %s", i+1, file, makeKey))
		case memberlist.ValidateKey(key) != nil:
			faults = append(faults, fmt.Errorf("gossip keys: line %d of %s has %d bytes: a key has 16, 24 or 32 random bytes; %s", i+1, file, len(key), makeKey))
		default:
			keys = append(keys, key)
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("gossip keys: %s has none: %s", file, makeKey)
	}
	return keys, nil
}

// fingerprint tells keys apart without showing them: the beginning of their SHA-256. A key is random, so that nobody finds it by that.
func fingerprint(key []byte) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:4])
}

// keyFile is Config.KeyFile as it was last read: by Start, and then by the goroutine that joins.
type keyFile struct {
	path string
	seen os.FileInfo // when its keys were last given
	next os.FileInfo // at the last look, if it had changed
	told string      // the last complaint, so that it is made once
}

// read gives the keys of the file if it has changed since they were last given, else nil. Who writes it line by line may have written the first alone by now, which would make sense: what has changed
// counts when two looks in turn have found the same, and with settling there should be another one soon.
func (f *keyFile) read() (keys [][]byte, settling bool, err error) {
	info, err := os.Stat(f.path)
	if err != nil {
		f.next = nil
		return nil, false, fmt.Errorf("gossip keys: %w", err)
	}
	if unchanged(f.seen, info) {
		f.next = nil
		return nil, false, nil
	}
	if f.seen != nil && !unchanged(f.next, info) {
		f.next = info
		return nil, true, nil
	}
	if keys, err = ReadKeys(f.path); err == nil {
		f.seen, f.next, f.told = info, nil, ""
	}
	return keys, false, err
}

// unchanged reports whether a file is as it was; nil = it was not looked at.
func unchanged(was, is os.FileInfo) bool {
	return was != nil && os.SameFile(was, is) && was.ModTime().Equal(is.ModTime()) && was.Size() == is.Size()
}

func newKeyring(keys [][]byte) (*memberlist.Keyring, error) {
	ring, err := memberlist.NewKeyring(keys, keys[0])
	if err != nil {
		return nil, fmt.Errorf("gossip: keys: %w", err)
	}
	return ring, nil
}

// firstKeys gives a start the keys of the file.
func (g *Gossip) firstKeys() error {
	if g.cfg.KeyFile == "" {
		return nil
	}
	g.file = keyFile{path: g.cfg.KeyFile}
	keys, _, err := g.file.read()
	if err != nil {
		return err
	}
	ring, err := newKeyring(keys)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.keyring = ring
	return nil
}

// lookAtKeys reads the file of keys again if it has changed. While it makes no sense, or is being written, the keys of before count. It is to be called again soon if it says so.
func (g *Gossip) lookAtKeys() (soon bool) {
	if g.cfg.KeyFile == "" {
		return false
	}
	keys, soon, err := g.file.read()
	if err == nil && keys != nil {
		err = g.setKeys(keys)
	}
	if err != nil && err.Error() != g.file.told {
		g.file.told = err.Error()
		g.logs.out.Load().Error("gossip: the file of keys has changed and cannot be used; the keys from before still are", "error", err)
	}
	return soon
}

// SetKeys changes the keys of a node that runs. To change the key of a whole application without a pause: give every node the old key and, second, the new one; then every node the new
// one and, second, the old; then every node the new one alone. Each change is logged, and Sealing tells it.
func (g *Gossip) SetKeys(keys [][]byte) error {
	if g.cfg.KeyFile != "" {
		return fmt.Errorf("gossip: set keys: they are those of KeyFile: change %s, which is read again while the node runs", g.cfg.KeyFile)
	}
	if err := checkKeys(keys); err != nil {
		return err
	}
	return g.setKeys(keys)
}

func (g *Gossip) setKeys(keys [][]byte) error {
	g.rekeying.Lock()
	defer g.rekeying.Unlock()
	ring := g.keyring()
	if ring == nil || len(keys) == 0 {
		return errors.New("gossip: set keys: sealing is not turned on or off while a node runs: start it with Keys, or without")
	}
	before := slices.Clone(ring.GetKeys())
	for _, key := range keys {
		if err := ring.AddKey(key); err != nil {
			return fmt.Errorf("gossip: set keys: %w", err)
		}
	}
	if err := ring.UseKey(keys[0]); err != nil {
		return fmt.Errorf("gossip: set keys: %w", err)
	}
	for _, had := range slices.Clone(ring.GetKeys()) {
		if !slices.ContainsFunc(keys, func(key []byte) bool { return bytes.Equal(key, had) }) {
			if err := ring.RemoveKey(had); err != nil {
				return fmt.Errorf("gossip: set keys: %w", err)
			}
		}
	}
	if now := ring.GetKeys(); !slices.EqualFunc(before, now, bytes.Equal) {
		g.logs.out.Load().Info("the keys of gossip have changed", append(sealing(now), "before", len(before), "sealed_before", fingerprint(before[0]))...)
	}
	return nil
}

// sealing says of keys what may be said of them.
func sealing(keys [][]byte) []any { return []any{"keys", len(keys), "seals", fingerprint(keys[0])} }

func (g *Gossip) keyring() *memberlist.Keyring {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.keyring
}

// tellKeys says at a start what the keys are.
func (g *Gossip) tellKeys() {
	ring := g.keyring()
	if ring != nil {
		g.logs.out.Load().Info("gossip is sealed", sealing(ring.GetKeys())...)
	}
}

// Sealing tells how many keys open what is said, and by which one it is sealed: by the first eight digits of the SHA-256 of the key. Without keys it is 0 and "".
func (g *Gossip) Sealing() (keys int, seals string) {
	ring := g.keyring()
	if ring == nil {
		return 0, ""
	}
	all := ring.GetKeys()
	return len(all), fingerprint(all[0])
}
