package gossip

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// meta is what a node says of itself in every message about it. Memberlist allows 512 bytes, so that the names of what it runs are here only if they are few: otherwise their sum is,
// and the list travels in the states that two nodes exchange. Fields that a program does not know are those of a newer one.
type meta struct {
	Store   string           `json:"s"`
	Node    string           `json:"n,omitempty"`
	PID     int              `json:"p,omitempty"`
	Start   event.Generation `json:"g,omitempty"`
	Since   int64            `json:"t,omitempty"` // ns
	Weight  int              `json:"w,omitempty"`
	Flags   uint8            `json:"f,omitempty"`
	Address string           `json:"a,omitempty"`
	Version string           `json:"v,omitempty"`
	Sum     string           `json:"h"`
	Names   []string         `json:"l,omitempty"`
}

const (
	flagDraining = 1 << iota
	flagApart
)

const (
	mostMeta = memberlist.MetaMaxSize
	fewNames = 400 // bytes of a meta up to which it has the names
)

// encodeMeta also gives the sum of the names.
func encodeMeta(m *transport.Member) (text []byte, sum string, err error) {
	e := meta{Store: m.StoreID, Node: m.Node, PID: m.PID, Start: m.Start, Weight: m.Weight, Address: m.Address, Version: m.Version, Sum: sumOf(m.Names)}
	if !m.Since.IsZero() {
		e.Since = m.Since.UnixNano()
	}
	if m.Draining {
		e.Flags |= flagDraining
	}
	if m.Apart {
		e.Flags |= flagApart
	}
	marshal := func(names []string, version string) ([]byte, error) {
		e.Names, e.Version = names, version
		return json.Marshal(e)
	}
	if len(m.Names) <= fewNames { // each takes more than a byte
		if text, err = marshal(m.Names, m.Version); err == nil && len(text) <= fewNames {
			return text, e.Sum, nil
		}
	}
	for _, version := range []string{m.Version, ""} {
		if text, err = marshal(nil, version); err != nil {
			return nil, "", fmt.Errorf("gossip: what this node says of itself: %w", err)
		}
		if len(text) <= mostMeta {
			return text, e.Sum, nil
		}
	}
	return nil, "", fmt.Errorf("gossip: what this node says of itself has %d bytes, and %d are allowed: shorten its name (%d bytes) or the address of its node service (%d bytes)", len(text), mostMeta, len(m.Node), len(m.Address))
}

// decodeMeta gives a member without ID and Gossip, and without Names where only their sum is there.
func decodeMeta(text []byte) (m transport.Member, sum string, err error) {
	var e meta
	if err := json.Unmarshal(text, &e); err != nil {
		return m, "", errors.New("it is not a node of Keyhold")
	}
	m = transport.Member{
		Node: e.Node, PID: e.PID, StoreID: e.Store, Start: e.Start, Weight: e.Weight, Address: e.Address, Version: e.Version, Names: e.Names,
		Draining: e.Flags&flagDraining != 0, Apart: e.Flags&flagApart != 0,
	}
	if e.Since != 0 {
		m.Since = time.Unix(0, e.Since).UTC()
	}
	return m, e.Sum, nil
}

// sumOf stands for a sorted list of names.
func sumOf(names []string) string {
	h := sha256.New()
	for _, name := range names {
		fmt.Fprintf(h, "%d:%s", len(name), name)
	}
	return base64.RawStdEncoding.EncodeToString(h.Sum(nil)[:12])
}

// state is what two nodes tell each other when they exchange all they know.
type state struct {
	Store string              `json:"store"`
	Lists map[string][]string `json:"lists,omitempty"` // of names, by their sum
	Left  []string            `json:"left,omitempty"`  // ids of members that have left: whoever missed that takes them for lost
}

const mostState = 4 << 20 // bytes of lists; a list that is left out comes from a node that has it as its own

// encodeState puts the list with sum own first.
func encodeState(store string, lists map[string][]string, own string, left []string) []byte {
	s := state{Store: store, Lists: map[string][]string{}, Left: left}
	room := mostState
	add := func(sum string) {
		names, have := lists[sum]
		size := 0
		for _, name := range names {
			size += len(name) + 3
		}
		if have && size <= room {
			s.Lists[sum] = names
			room -= size
		}
	}
	add(own)
	for sum := range lists {
		if sum != own {
			add(sum)
		}
	}
	text, err := json.Marshal(s)
	if err != nil { // strings alone: cannot be
		return nil
	}
	return text
}

// decodeState leaves out lists that are not what their sum says.
func decodeState(text []byte) (state, error) {
	var s state
	if err := json.Unmarshal(text, &s); err != nil {
		return state{}, errors.New("it is not a node of Keyhold")
	}
	for sum, names := range s.Lists {
		if sumOf(names) != sum || !slices.IsSorted(names) {
			delete(s.Lists, sum)
		}
	}
	return s, nil
}
