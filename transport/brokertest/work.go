package brokertest

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

const busyPage = 100 // keys of one page

type member struct {
	transport.Member
	until time.Duration
}

// Mark implements [transport.Work].
func (b *Broker) Mark(ctx context.Context, units []event.Unit) error {
	var woken []event.Unit
	err := b.do(ctx, Call{Op: "mark"}, func() error {
		for _, u := range units {
			b.mark(u)
		}
		woken = units
		return nil
	})
	b.wake(woken)
	return err
}

// Busy implements [transport.Work]. The cursor is a place among the keys in order.
func (b *Broker) Busy(ctx context.Context, name string, cursor uint64) ([]string, uint64, error) {
	var keys []string
	var next uint64
	err := b.do(ctx, Call{Op: "busy", Unit: event.Unit{Name: name}}, func() error {
		all := slices.Sorted(maps.Keys(b.mu.busy[name]))
		from := min(int(cursor), len(all))
		page := all[from:min(from+busyPage, len(all))]
		if from+len(page) < len(all) {
			next = uint64(from + len(page))
		}
		for _, key := range page {
			if _, rests := b.mu.halted[name][key]; !rests {
				keys = append(keys, key)
			}
		}
		return nil
	})
	return keys, next, err
}

// Resting implements [transport.Work].
func (b *Broker) Resting(ctx context.Context, name string, cursor uint64) ([]string, uint64, error) {
	var keys []string
	var next uint64
	err := b.do(ctx, Call{Op: "resting"}, func() error {
		all := slices.Sorted(maps.Keys(b.mu.halted[name]))
		from := min(int(cursor), len(all))
		keys = all[from:min(from+busyPage, len(all))]
		if from+len(keys) < len(all) {
			next = uint64(from + len(keys))
		}
		return nil
	})
	return keys, next, err
}

// Leases implements [transport.Work].
func (b *Broker) Leases(ctx context.Context, units []event.Unit) ([]time.Duration, error) {
	left := make([]time.Duration, len(units))
	err := b.do(ctx, Call{Op: "leases"}, func() error {
		for i, u := range units {
			if l := b.mu.units[u]; l != nil && l.owner != "" {
				left[i] = max(0, l.until-b.now())
			}
		}
		return nil
	})
	return left, err
}

// Halted implements [transport.Work].
func (b *Broker) Halted(ctx context.Context, u event.Unit, halted bool) error {
	return b.do(ctx, Call{Op: "halted", Unit: u}, func() error {
		if halted {
			add(b.mu.halted, u.Name, u.Key)
		} else {
			delete(b.mu.halted[u.Name], u.Key)
		}
		return nil
	})
}

// Beat implements [transport.Membership].
func (b *Broker) Beat(ctx context.Context, m transport.Member, ttl time.Duration) ([]transport.Member, error) {
	var all []transport.Member
	err := b.do(ctx, Call{Op: "beat"}, func() error {
		m.Names, m.Wants = slices.Clone(m.Names), slices.Clone(m.Wants)
		b.mu.members[m.ID] = member{Member: m, until: b.now() + ttl}
		for id, other := range b.mu.members {
			switch {
			case other.until <= b.now():
				delete(b.mu.members, id)
			case other.StoreID == m.StoreID:
				all = append(all, other.Member)
			}
		}
		return nil
	})
	slices.SortFunc(all, func(x, y transport.Member) int { return cmp.Compare(x.ID, y.ID) })
	return all, err
}

// Leave implements [transport.Membership].
func (b *Broker) Leave(ctx context.Context, m transport.Member) error {
	return b.do(ctx, Call{Op: "leave"}, func() error {
		delete(b.mu.members, m.ID)
		return nil
	})
}

// Declare implements [transport.Registrations].
func (b *Broker) Declare(ctx context.Context, d transport.Declared) error {
	return b.do(ctx, Call{Op: "declare"}, func() error {
		var faults []error
		for i := range d.Categories {
			faults = append(faults, b.disagreesOn(&d.Categories[i], d.StoreID)...)
			faults = append(faults, b.claimed(&d.Categories[i], &d)...)
		}
		for i := range d.Subscribers {
			faults = append(faults, b.disagreesWith(&d.Subscribers[i])...)
		}
		if len(faults) > 0 {
			return errors.Join(faults...)
		}
		for _, c := range d.Categories {
			if c.StoreID == "" {
				c.StoreID = b.mu.categories[c.Category].StoreID
			}
			b.mu.categories[c.Category] = c
		}
		for _, s := range d.Subscribers {
			b.begin(s)
			s.Begins = time.Time{}
			b.mu.subscribers[subscription{s.Name, s.Category}] = s
		}
		return nil
	})
}

func (b *Broker) begin(s transport.Subscriber) {
	b.own.Lock()
	defer b.own.Unlock()
	if b.own.begins == nil {
		b.own.begins = make(map[subscription]time.Time)
	}
	b.own.begins[subscription{s.Name, s.Category}] = s.Begins
}

// disagreesOn compares a category with what is held.
func (s *Server) disagreesOn(c *transport.Produced, own string) []error {
	held, known := s.mu.categories[c.Category]
	if !known {
		return nil
	}
	var faults []error
	fault := func(ours, theirs, remedy string) {
		faults = append(faults, &transport.DeclaredError{What: "category " + c.Category, Ours: ours, Theirs: theirs, Remedy: remedy})
	}
	if held.KeyField != c.KeyField {
		fault("the key "+c.KeyField, "the key "+held.KeyField, "all programs must declare the same key")
	}
	if held.Buckets != c.Buckets {
		fault(strconv.Itoa(c.Buckets)+" buckets", strconv.Itoa(held.Buckets)+" buckets", "all programs must declare the same number")
	}
	if held.StoreID != "" && c.StoreID != "" && held.StoreID != c.StoreID {
		fault("store "+c.StoreID, "store "+held.StoreID, "one store produces a category: give the other one another name")
	}
	if c.StoreID == "" && held.StoreID == transport.PolledStore {
		fault("another application as the producer", "programs that are no application", "read the category into which they are taken")
	}
	if c.StoreID == "" && held.StoreID != "" && held.StoreID == own {
		fault("events of another application than that of store "+own, "store "+held.StoreID, "what a store produces is its own")
	}
	return faults
}

// claimed notes that a store goes on producing a category that another one has, and finds such a note.
func (s *Server) claimed(c *transport.Produced, d *transport.Declared) []error {
	if c.StoreID != d.StoreID {
		return nil
	}
	if held := s.mu.categories[c.Category].StoreID; held != "" && held != c.StoreID {
		if d.Running {
			s.mu.claims[c.Category] = claim{c.StoreID, s.now()}
		}
		return nil // which is told already
	}
	by, known := s.mu.claims[c.Category]
	if !known || by.store == c.StoreID || s.now()-by.at >= time.Minute {
		return nil
	}
	return []error{&transport.DeclaredError{What: "category " + c.Category, Ours: "store " + c.StoreID, Theirs: "store " + by.store + " as well, which runs",
		Remedy: "one store produces a category: give the other one another name"}}
}

// claim is that a store goes on producing what another one has.
type claim struct {
	store string
	at    time.Duration
}

// disagreesWith compares a subscriber with those of its name.
func (s *Server) disagreesWith(sub *transport.Subscriber) []error {
	for _, held := range s.mu.subscribers {
		if held.Name != sub.Name {
			continue
		}
		e := &transport.DeclaredError{What: sub.Kind + " " + sub.Name}
		switch {
		case held.StoreID != sub.StoreID:
			e.Ours, e.Theirs, e.Remedy = "store "+sub.StoreID, "store "+held.StoreID, "a name keeps its checkpoints in one store: give one of the two another name"
		case held.Kind != sub.Kind:
			e.Ours, e.Theirs, e.Remedy = "kind "+sub.Kind, "kind "+held.Kind, "give one of the two another name"
		default:
			continue
		}
		return []error{e}
	}
	return nil
}

// Subscribers implements [transport.Registrations].
func (b *Broker) Subscribers(ctx context.Context, categories []string) (map[string][]transport.Subscriber, error) {
	found := make(map[string][]transport.Subscriber)
	err := b.do(ctx, Call{Op: "subscribers"}, func() error {
		for at, s := range b.mu.subscribers {
			if slices.Contains(categories, at.category) {
				found[at.category] = append(found[at.category], s)
			}
		}
		return nil
	})
	for _, all := range found {
		slices.SortFunc(all, func(x, y transport.Subscriber) int { return cmp.Compare(x.Name, y.Name) })
	}
	return found, err
}

// Unregister implements [transport.Registrations].
func (b *Broker) Unregister(ctx context.Context, name string) error {
	return b.do(ctx, Call{Op: "unregister"}, func() error {
		maps.DeleteFunc(b.mu.subscribers, func(at subscription, s transport.Subscriber) bool {
			if at.name == name && b.mu.categories[at.category].StoreID != s.StoreID {
				over := transport.Wanted{Unit: event.Unit{Name: name}, Lane: event.LaneRef{Category: at.category}, Over: true, StoreID: s.StoreID}
				b.mu.asked++
				over.ID = strconv.Itoa(b.mu.asked)
				b.mu.wanted[place{over.Unit, over.Lane}] = over
			}
			return at.name == name
		})
		delete(b.mu.busy, name)
		delete(b.mu.halted, name)
		return nil
	})
}
