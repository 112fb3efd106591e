package gossip_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/cluster/gossip"
	"github.com/keyhold/keyhold/transport"
)

func line(key []byte) string { return base64.StdEncoding.EncodeToString(key) + "\n" }

// prints is what is shown of a key.
func prints(key []byte) string {
	sum := sha256.Sum256(key)
	return fmt.Sprintf("%x", sum[:4])
}

func keyFile(t *testing.T, lines ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys")
	replaceFile(t, file, lines...)
	return file
}

// replaceFile does so as whoever changes keys does.
func replaceFile(t *testing.T, file string, lines ...string) {
	t.Helper()
	if err := os.WriteFile(file+".next", []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".next", file); err != nil {
		t.Fatal(err)
	}
}

func TestReadKeys(t *testing.T) {
	t.Parallel()
	short, middle := bytes.Repeat([]byte{7}, 16), bytes.Repeat([]byte{8}, 24)
	got, err := gossip.ReadKeys(keyFile(t, "# the newest first\r\n", "  "+line(key(1)), "\n", line(short), line(middle)))
	if err != nil || len(got) != 3 || !bytes.Equal(got[0], key(1)) || !bytes.Equal(got[1], short) || !bytes.Equal(got[2], middle) {
		t.Errorf("%v, %v", got, err)
	}
	secret := "c2VjcmV0c2VjcmV0" // 12 bytes
	for name, c := range map[string]struct {
		file string
		want []string
	}{
		"gone":        {keyFile(t, line(key(1))) + ".gone", []string{"gossip keys: open "}},
		"a directory": {t.TempDir(), []string{"is no file"}},
		"empty":       {keyFile(t, "# none\n\n"), []string{"has none: make one with openssl rand -base64 32"}},
		"huge":        {keyFile(t, strings.Repeat("#\n", 64<<10)), []string{"has more than 65536 bytes"}},
		"all faults at once": {keyFile(t, "# \n", "not-base-64\n", line(key(1)), secret+"\n"),
			[]string{"line 2 of ", "is not base64: make one with", "line 4 of ", "has 12 bytes: a key has 16, 24 or 32 random bytes"}},
	} {
		keys, err := gossip.ReadKeys(c.file)
		if err == nil || keys != nil {
			t.Errorf("%s: %v, %v", name, keys, err)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q is not in %v", name, part, err)
			}
		}
		if strings.Contains(err.Error(), "not-base-64") || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: what is in the file is shown: %v", name, err)
		}
	}
}

func FuzzKeyFile(f *testing.F) {
	f.Add("# a\n" + line(key(1)) + "\n" + line(key(2)))
	f.Add("AAAA\n=\n")
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := gossip.DecodeKeys(text)
		if (err == nil) != (len(keys) > 0) {
			t.Fatalf("%d keys, %v", len(keys), err)
		}
		for _, k := range keys {
			if n := len(k); n != 16 && n != 24 && n != 32 {
				t.Fatalf("a key of %d bytes", n)
			}
		}
	})
}

// withFile starts a node whose keys are in a file.
func (c *crowd) withFile(log *said, file string) *node {
	c.Helper()
	n := len(c.nodes) + 1
	x := &node{id: "id-" + string(rune('a'+n)), at: address(n), file: file}
	x.Gossip = build(c.T, c.net, n, gossip.Config{Seeds: []string{address(1)}, KeyFile: file, Logger: log.logger()})
	if err := x.Start(c.Context(), transport.Member{ID: x.id, Node: x.id, StoreID: "store"}, nil, func() {}); err != nil {
		c.Fatal(err)
	}
	c.nodes = append(c.nodes, x)
	return x
}

// sealed says how many keys a node has, and by which it seals.
func (c *crowd) sealed(x *node, keys int, seals []byte) {
	c.Helper()
	if n, by := x.Sealing(); n != keys || by != prints(seals) {
		c.Errorf("%s has %d keys and seals with %s, want %d and %s", x.id, n, by, keys, prints(seals))
	}
}

// In three steps, each by changing the file of one node after the other, keys are replaced: nobody is unheard meanwhile, and each step is told.
func TestKeysAreChangedInTheFileWhileNodesRun(t *testing.T) {
	older, newer := key(1), key(2)
	bubble(t, func(c *crowd) {
		log := &said{}
		for range 3 {
			c.sealed(c.withFile(log, keyFile(t, line(older))), 1, older)
		}
		c.pass(20 * time.Second)
		if !log.has(`msg="gossip is sealed"`, "keys=1 seals="+prints(older)) {
			t.Errorf("at the start it says:\n%s", log)
		}
		for i, step := range []struct {
			keys [][]byte
			says string
		}{
			{[][]byte{older, newer}, "keys=2 seals=" + prints(older) + " before=1 sealed_before=" + prints(older)},
			{[][]byte{newer, older}, "keys=2 seals=" + prints(newer) + " before=2 sealed_before=" + prints(older)},
			{[][]byte{newer}, "keys=1 seals=" + prints(newer) + " before=2 sealed_before=" + prints(newer)},
		} {
			for _, x := range c.nodes {
				var lines []string
				for _, k := range step.keys {
					lines = append(lines, line(k))
				}
				replaceFile(t, x.file, lines...)
				c.pass(17 * time.Second) // as long as it takes to look again, twice
				c.sealed(x, len(step.keys), step.keys[0])
				c.whole(c.nodes...)
			}
			if n := strings.Count(log.String(), step.says); n != 3 || !log.has("level=INFO", `msg="the keys of gossip have changed"`, step.says) {
				t.Errorf("step %d is told %d times:\n%s", i+1, n, log)
			}
		}
		if log.has("WARN") || log.has("ERROR") {
			t.Errorf("it says:\n%s", log)
		}
		for _, secret := range [][]byte{older, newer} {
			if log.has(base64.StdEncoding.EncodeToString(secret)) {
				t.Error("a key is in the log")
			}
		}
		late := c.withFile(log, keyFile(t, line(older)))
		c.pass(20 * time.Second)
		if len(alive(late)) != 0 {
			t.Error("the old key still opens")
		}
	})
}

func TestAFileOfKeysThatMakesNoSenseLeavesThoseOfBefore(t *testing.T) {
	bubble(t, func(c *crowd) {
		log := &said{}
		file := keyFile(t, line(key(1)))
		x := c.withFile(log, file)
		c.withFile(log, keyFile(t, line(key(1))))
		c.pass(20 * time.Second)
		replaceFile(t, file, line(key(2)), "half of a k")
		c.pass(2 * time.Minute)
		c.sealed(x, 1, key(1))
		c.whole(c.nodes...)
		if n := strings.Count(log.String(), "cannot be used"); n != 1 || !log.has("level=ERROR", "keys from before still are", "line 2 of ", "is not base64") {
			t.Errorf("told %d times:\n%s", n, log)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		c.pass(20 * time.Second)
		c.sealed(x, 1, key(1))
		if !log.has("level=ERROR", "no such file") {
			t.Errorf("it says:\n%s", log)
		}
		replaceFile(t, file, line(key(1)), line(key(3)))
		c.pass(20 * time.Second)
		c.sealed(x, 2, key(1))
	})
}

// Whoever writes the file line by line leaves a first line for a while that makes sense by itself. It does not count before the file is left alone.
func TestAFileOfKeysIsNotReadInTheMiddleOfBeingWritten(t *testing.T) {
	bubble(t, func(c *crowd) {
		log := &said{}
		file := keyFile(t, line(key(1)))
		x := c.withFile(log, file)
		c.withFile(log, keyFile(t, line(key(1))))
		c.pass(20 * time.Second)
		for i := range 40 { // at every look it is another
			replaceFile(t, file, line(key(2)), strings.Repeat("#\n", i))
			c.pass(time.Second)
			c.sealed(x, 1, key(1))
		}
		replaceFile(t, file, line(key(1)), line(key(2)))
		c.pass(20 * time.Second)
		c.sealed(x, 2, key(1))
		if log.has("WARN") || log.has("ERROR") {
			t.Errorf("it says:\n%s", log)
		}
	})
}

// What Start says of keys and of all else, it says at once.
func TestAStartWithoutKeysThatMakeSense(t *testing.T) {
	t.Parallel()
	self := transport.Member{ID: "a", StoreID: "store"}
	err := gossip.New(gossip.Config{Preset: 9, KeyFile: keyFile(t, "x\n")}).Start(t.Context(), self, nil, func() {})
	for _, part := range []string{"Preset 9", "line 1 of "} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
	file := keyFile(t, line(key(1)))
	g := gossip.New(gossip.Config{KeyFile: file})
	if err := g.SetKeys([][]byte{key(2)}); err == nil || !strings.Contains(err.Error(), "change "+file) {
		t.Errorf("set keys beside a file: %v", err)
	}
	if n, seals := gossip.New(gossip.Config{}).Sealing(); n != 0 || seals != "" {
		t.Errorf("without keys: %d, %q", n, seals)
	}
	if err := gossip.New(gossip.Config{}).SetKeys([][]byte{key(2)}); err == nil || !strings.Contains(err.Error(), "start it with Keys") {
		t.Errorf("sealing is turned on: %v", err)
	}
	if err := gossip.New(gossip.Config{Keys: [][]byte{key(1)}}).SetKeys([][]byte{{1}}); err == nil || !strings.Contains(err.Error(), "has 1 bytes") {
		t.Errorf("a short key: %v", err)
	}
}
