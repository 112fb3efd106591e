package brokertest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// stream is a lane's: a run without a gap.
type stream struct {
	entries []event.Envelope
	passed  map[string]event.Sequence // by subscriber that has read it
}

// run is what a subscriber with a store of its own asked for.
type run struct {
	after   event.Sequence
	entries []event.Envelope
	begin   bool // after is the place of one who had none
}

func (s *stream) newest() event.Sequence {
	if s == nil || len(s.entries) == 0 {
		return 0
	}
	return s.entries[len(s.entries)-1].Sequence
}

// at gives the entry at a sequence, nil where there is none.
func (s *stream) at(seq event.Sequence) *event.Envelope {
	for i := range s.entries {
		if s.entries[i].Sequence == seq {
			return &s.entries[i]
		}
	}
	return nil
}

func (s *stream) cut(through event.Sequence) {
	at, _ := slices.BinarySearchFunc(s.entries, through+1, func(e event.Envelope, seq event.Sequence) int { return cmp.Compare(e.Sequence, seq) })
	s.entries = s.entries[at:]
}

// Append implements [transport.BrokerStreams].
func (b *Broker) Append(ctx context.Context, runs []transport.Append) []transport.Appended {
	answers := make([]transport.Appended, len(runs))
	var woken []event.Unit
	for i := range runs {
		a := &runs[i]
		err := b.do(ctx, Call{Op: "append", Lane: a.Lane}, func() error {
			if b.mu.full && len(a.Entries) > 0 {
				return transport.ErrFull
			}
			answers[i] = b.append(a)
			for _, name := range a.Subscribers {
				if u := (event.Unit{Name: name, Key: a.Lane.Key}); b.mark(u) {
					woken = append(woken, u)
				}
			}
			return nil
		})
		if err != nil {
			answers[i] = transport.Appended{Err: err}
		}
	}
	b.wake(woken)
	return answers
}

func (s *Server) append(a *transport.Append) transport.Appended {
	st := s.mu.streams[a.Lane]
	newest := st.newest()
	fresh, outcome := a.Entries, transport.AppendOK
	switch {
	case newest == 0 && (len(fresh) == 0 || !a.Start):
		return transport.Appended{Outcome: transport.AppendEmpty}
	case len(fresh) == 0 || newest == 0:
	case fresh[0].Sequence > newest+1:
		fresh, outcome = nil, transport.AppendGap
	case fresh[0].Sequence <= newest:
		fresh, outcome = above(fresh, &st.entries[len(st.entries)-1])
	}
	if len(fresh) > 0 {
		if st == nil {
			st = &stream{passed: make(map[string]event.Sequence)}
			s.mu.streams[a.Lane] = st
		}
		add(s.mu.index, a.Lane.Category, a.Lane.Key)
		st.entries = append(st.entries, fresh...)
		if over := len(st.entries) - s.limits.MaxAhead; over > 0 {
			st.entries = st.entries[over:]
		}
	}
	last := &st.entries[len(st.entries)-1]
	s.mu.newest[a.Lane] = last.Sequence
	return transport.Appended{Outcome: outcome, Newest: last.Sequence, NewestID: last.ID}
}

// above gives what of a run follows the newest entry, when that is one of the run.
func above(run []event.Envelope, newest *event.Envelope) ([]event.Envelope, transport.AppendOutcome) {
	at := int(newest.Sequence - run[0].Sequence)
	if at >= len(run) || run[at].ID != newest.ID {
		return nil, transport.AppendDup
	}
	return run[at+1:], transport.AppendOK
}

// Trim implements [transport.BrokerStreams].
func (b *Broker) Trim(ctx context.Context, lanes []transport.Trim) []error {
	errs := make([]error, len(lanes))
	for i, t := range lanes {
		errs[i] = b.do(ctx, Call{Op: "trim", Lane: t.Lane}, func() error {
			if st := b.mu.streams[t.Lane]; st.newest() > 0 {
				through := min(t.Through, st.newest()-1)
				for _, name := range b.holders(t) {
					through = min(through, st.passed[name])
				}
				st.cut(through)
			}
			return nil
		})
	}
	return errs
}

// Retire implements [transport.BrokerStreams].
func (b *Broker) Retire(ctx context.Context, lanes []transport.Retire) []error {
	errs := make([]error, len(lanes))
	for i, r := range lanes {
		errs[i] = b.do(ctx, Call{Op: "retire", Lane: r.Lane}, func() error { return b.retire(&r) })
	}
	return errs
}

func (s *Server) retire(r *transport.Retire) error {
	st := s.mu.streams[r.Lane]
	if newest := st.newest(); newest > 0 {
		if newest > r.Through {
			return fmt.Errorf("retire %s: %w: newest is %d", r.Lane, transport.ErrBusy, newest)
		}
		for _, name := range r.Subscribers {
			if passed, read := st.passed[name]; !read || passed < newest {
				return fmt.Errorf("retire %s: %w: %s is at %d of %d", r.Lane, transport.ErrBusy, name, passed, newest)
			}
		}
	}
	delete(s.mu.streams, r.Lane)
	delete(s.mu.newest, r.Lane)
	other := r.Lane
	other.Lane = event.Primary + event.Backfill - r.Lane.Lane
	if s.mu.streams[other].newest() == 0 {
		delete(s.mu.index[r.Lane.Category], r.Lane.Key)
	}
	return nil
}

// Partitions implements [transport.BrokerStreams].
func (b *Broker) Partitions(ctx context.Context, category string) (int, error) {
	n := 0
	err := b.do(ctx, Call{Op: "partitions", Lane: event.LaneRef{Category: category}}, func() error {
		n = len(b.mu.index[category])
		return nil
	})
	return n, err
}

// holders are the subscribers of other stores than the one that this node works on.
func (b *Broker) holders(t transport.Trim) []string {
	_, own := b.bound()
	names := slices.Clone(t.Subscribers)
	for at, s := range b.mu.subscribers {
		if at.category == t.Lane.Category && own != "" && s.StoreID != own {
			names = append(names, at.name)
		}
	}
	return names
}

// Beginnings implements [transport.BrokerStreams].
func (b *Broker) Beginnings(ctx context.Context, category string, from *time.Time) ([]event.Position, error) {
	var places []event.Position
	err := b.do(ctx, Call{Op: "beginnings"}, func() error {
		for lane, st := range b.mu.streams {
			at := st.newest()
			if from != nil && at > 0 {
				first := slices.IndexFunc(st.entries, func(e event.Envelope) bool { return e.Time.IsZero() || !e.Time.Before(*from) })
				switch {
				case first == 0:
					at = 0
				case first > 0:
					at = st.entries[first].Sequence - 1
				}
			}
			if lane.Category == category && at > 0 {
				places = append(places, event.Position{Lane: lane, Sequence: at, EventID: st.entries[at-st.entries[0].Sequence].ID})
			}
		}
		return nil
	})
	return places, err
}

// Wanted implements [transport.BrokerStreams].
func (b *Broker) Wanted(ctx context.Context, category string) ([]transport.Wanted, error) {
	var found []transport.Wanted
	err := b.do(ctx, Call{Op: "wanted"}, func() error {
		for w := range maps.Values(b.mu.wanted) {
			if w.Lane.Category == category {
				found = append(found, w)
			}
		}
		return nil
	})
	slices.SortFunc(found, func(v, w transport.Wanted) int { return cmp.Compare(v.ID, w.ID) })
	return found, err
}

// Serve implements [transport.BrokerStreams].
func (b *Broker) Serve(ctx context.Context, w transport.Wanted, entries []event.Envelope) error {
	woken := false
	err := b.do(ctx, Call{Op: "serve", Lane: w.Lane, Unit: w.Unit}, func() error {
		at := place{w.Unit, w.Lane}
		if b.mu.wanted[at].ID != w.ID {
			return nil // withdrawn, or served by another
		}
		delete(b.mu.wanted, at)
		if w.Over {
			return nil
		}
		if w.Begin && len(entries) > 0 {
			w.After = entries[0].Sequence - 1
		}
		b.mu.served[at] = &run{after: w.After, entries: slices.Clone(entries), begin: w.Begin}
		b.mark(w.Unit)
		woken = true
		return nil
	})
	if woken {
		b.wake([]event.Unit{w.Unit})
	}
	return err
}
