package cluster

import (
	"container/list"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// owners remembers who has an entity, where that is not the member that ranks first for it: what follows from the members is not remembered. What it says is a hint, and costs a redirect
// where it is wrong. Not safe for concurrent use.
type owners struct {
	most int                          // entries at once
	by   map[event.Unit]*list.Element // of recent
	used list.List                    // of *owned, the one used last in front
}

// owned is one entry.
type owned struct {
	unit  event.Unit
	owner transport.PeerOwner
	until time.Time // it counts no longer, unless it is confirmed
}

func newOwners(most int) *owners { return &owners{most: most, by: map[event.Unit]*list.Element{}} }

// find gives who has a unit; the zero value = nothing is remembered that still counts.
func (o *owners) find(u event.Unit, f *field, now time.Time) transport.PeerOwner {
	e := o.by[u]
	if e == nil {
		return transport.PeerOwner{}
	}
	was := e.Value.(*owned)
	if !now.Before(was.until) || !f.isException(u, was.owner.ID) {
		o.drop(e)
		return transport.PeerOwner{}
	}
	o.used.MoveToFront(e)
	return was.owner
}

// learn takes what was heard, which counts for ttl. A lower generation never replaces a higher one.
func (o *owners) learn(u event.Unit, owner transport.PeerOwner, f *field, now time.Time, ttl time.Duration) {
	e := o.by[u]
	if e != nil && e.Value.(*owned).owner.Generation > owner.Generation {
		return
	}
	if !f.isException(u, owner.ID) {
		o.drop(e)
		return
	}
	if e != nil {
		was := e.Value.(*owned)
		was.owner, was.until = owner, now.Add(ttl)
		o.used.MoveToFront(e)
		return
	}
	o.by[u] = o.used.PushFront(&owned{u, owner, now.Add(ttl)})
	for len(o.by) > o.most {
		o.drop(o.used.Back())
	}
}

// forget drops that this owner has the unit at that generation, or had at an earlier one.
func (o *owners) forget(u event.Unit, owner transport.PeerOwner) {
	if e := o.by[u]; e != nil {
		if was := e.Value.(*owned).owner; was.ID == owner.ID && was.Generation <= owner.Generation {
			o.drop(e)
		}
	}
}

func (o *owners) drop(e *list.Element) {
	if e != nil {
		delete(o.by, e.Value.(*owned).unit)
		o.used.Remove(e)
	}
}

// isException reports whether a member is another one than this process would ask by itself, and can be asked.
func (f *field) isException(u event.Unit, id string) bool {
	m := f.member(id)
	if m == nil || id == f.self || !f.canAsk(m) {
		return false
	}
	first := f.first(u)
	return first == nil || first.ID != id
}
