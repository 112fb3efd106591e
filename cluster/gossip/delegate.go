package gossip

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/keyhold/keyhold/transport"
)

// delegate is what memberlist calls, some of it with its lock held: nothing here waits for anything but the roster's mutex, under which nothing waits.
type delegate struct {
	g     *Gossip
	store string
}

var leavingTag = []byte("leaving ")

// leaving is the message of a member that goes. Memberlist's own says as much, but does not tell whom it calls.
func leaving(id string) []byte { return append(slices.Clone(leavingTag), id...) }

// NodeMeta implements [memberlist.Delegate].
func (d *delegate) NodeMeta(int) []byte {
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	return d.g.mu.meta
}

// note changes the roster, unless the list that calls is over.
func (d *delegate) note(change func(r *roster, now time.Time)) {
	d.g.mu.Lock()
	current := d.g.mu.delegate == d
	if current {
		change(d.g.mu.roster, time.Now())
	}
	d.g.mu.Unlock()
	if current {
		token(d.g.news)
	}
}

// NotifyMsg implements [memberlist.Delegate].
func (d *delegate) NotifyMsg(message []byte) {
	if id, ok := bytes.CutPrefix(message, leavingTag); ok {
		name := string(id)
		d.note(func(r *roster, now time.Time) { r.left(name, now) })
	}
}

// GetBroadcasts implements [memberlist.Delegate]: what a node says of itself goes with memberlist's own messages.
func (d *delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState implements [memberlist.Delegate]. Lists of names go only with the exchanges that a node asks for, which it does when it lacks one: they may be long.
func (d *delegate) LocalState(asked bool) []byte {
	d.g.mu.Lock()
	r := d.g.mu.roster
	lists, own, left := map[string][]string{}, r.sum, r.leavers()
	if asked {
		maps.Copy(lists, r.lists)
	}
	d.g.mu.Unlock()
	return encodeState(d.store, lists, own, left)
}

// MergeRemoteState implements [memberlist.Delegate].
func (d *delegate) MergeRemoteState(text []byte, _ bool) {
	s, err := decodeState(text)
	if err != nil || s.Store != d.store {
		return // who asked to join was refused by NotifyMerge, which says so
	}
	d.note(func(r *roster, now time.Time) { r.merge(s, now) })
}

// NotifyAlive implements [memberlist.AliveDelegate]: with an error the message is as good as never sent.
func (d *delegate) NotifyAlive(n *memberlist.Node) error {
	_, _, err := d.member(n)
	if err != nil {
		d.g.logs.warn(foreign, n.Address(), "", "id", n.Name, "address", n.Address(), "because", err)
	}
	return err
}

// NotifyMerge implements [memberlist.MergeDelegate].
func (d *delegate) NotifyMerge(peers []*memberlist.Node) error {
	for _, n := range peers {
		if _, _, err := d.member(n); err != nil {
			d.g.logs.warn(refused, n.Address(), ": let its nodes have a Bind and Seeds of their own, or Keys of their own",
				"id", n.Name, "address", n.Address(), "because", err)
			return fmt.Errorf("%s at %s: %w", n.Name, n.Address(), err)
		}
	}
	return nil
}

// member gives who a node is, or an error if it is none of this application.
func (d *delegate) member(n *memberlist.Node) (transport.Member, string, error) {
	m, sum, err := decodeMeta(n.Meta)
	if err != nil {
		return m, "", err
	}
	if m.StoreID != d.store {
		return m, "", fmt.Errorf("its store is %q, and this node's %q", m.StoreID, d.store)
	}
	m.ID, m.Gossip = n.Name, n.Address()
	return m, sum, nil
}

// NotifyJoin implements [memberlist.EventDelegate].
func (d *delegate) NotifyJoin(n *memberlist.Node) {
	if m, sum, err := d.member(n); err == nil {
		d.note(func(r *roster, now time.Time) {
			r.alive(m, sum, now)
			if _, known := r.lists[sum]; !known {
				token(d.g.look) // ask it
			}
		})
	}
}

// NotifyUpdate implements [memberlist.EventDelegate].
func (d *delegate) NotifyUpdate(n *memberlist.Node) { d.NotifyJoin(n) }

// NotifyLeave implements [memberlist.EventDelegate]. Who has said that it goes is noted as such already; of the others nobody knows.
func (d *delegate) NotifyLeave(n *memberlist.Node) {
	id := n.Name
	d.note(func(r *roster, now time.Time) { r.lost(id, now) })
}

// NotifyConflict implements [memberlist.ConflictDelegate].
func (d *delegate) NotifyConflict(existing, other *memberlist.Node) {
	d.g.logs.warn(copied, other.Address(), ", of which the second is not heard: each start makes an id of its own, so that one of them must be a copy of the other's memory, such as a cloned machine; restart it",
		"id", existing.Name, "first", existing.Address(), "second", other.Address())
}
