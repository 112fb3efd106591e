package actors

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/partitions"
)

// leased is a port that leases each unit, to whoever asks, and has no entries.
type leased struct{ partitions.Port }

func (leased) Traits() partitions.Traits {
	return partitions.Traits{Leased: true, TTL: 10 * time.Second, Heartbeat: 2 * time.Second, Margin: time.Second}
}

func (leased) Acquire(_ context.Context, _ event.Unit, floor event.Generation) (partitions.Acquired, error) {
	return partitions.Acquired{Granted: true, Generation: floor + 1}, nil
}

func (leased) Fetch(context.Context, partitions.Held, []event.Position, int) (partitions.Fetched, error) {
	return partitions.Fetched{Drained: true}, nil
}

func (leased) Advance(context.Context, partitions.Held, []event.Position, int) (partitions.Fetched, error) {
	return partitions.Fetched{Drained: true}, nil
}

func (leased) Renew(_ context.Context, held []partitions.Held) []error {
	return slices.Repeat([]error{errors.New("connection refused")}, len(held))
}

func (leased) Release(context.Context, partitions.Held, bool) error { return nil }

type (
	touch   struct{}
	look    struct{ For time.Duration }
	touched struct{}
)

func TestUnderALeaseCommitsAreFencedAndLateAnswersAreNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var fences []eventstore.Fence
		store := faulty.Wrap(memory.Open(), func(op faulty.Op) faulty.Fault {
			if op.Call == faulty.Commit {
				fences = append(fences, op.Changes.Fence)
			}
			return faulty.Fault{}
		})
		if _, err := store.Start(t.Context(), eventstore.StartOptions{}); err != nil {
			t.Fatal(err)
		}
		types, err := codec.NewRegistry([]codec.Declaration{codec.Of[touched]("touched", 1)})
		if err != nil {
			t.Fatal(err)
		}
		thing := Entity[touched]{
			Kind: "thing", SnapshotEvery: -1,
			Commands: Commands[touched]{OnCommand(func(c Command, _ touched, _ *touch) (*touched, error) {
				c.Emit(touched{})
				return &touched{}, nil
			})},
			Queries: Queries[touched]{OnQuery(func(q Query, _ touched, in *look) (*touched, error) {
				long, cancel := context.WithTimeout(q, in.For)
				defer cancel()
				<-long.Done()
				return &touched{}, nil
			})},
			Fold: Fold[touched]{OnEvent(func(s touched, _ touched) touched { return s })},
		}
		cfg := Config{Definitions: []Definition{thing}, Store: store, Port: leased{}, Codec: types}
		cfg.Route = func(_ context.Context, _ event.Stream, v any) (event.Envelope, error) {
			enc, err := types.Encode(v)
			return event.Envelope{Type: enc.Type, Version: 1, Encoding: enc.Encoding, Data: enc.Data, Category: "thing", Key: "a"}, err
		}
		rt, err := NewRuntime(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := rt.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := rt.Ask(t.Context(), thing.ID("a"), &touch{}); err != nil {
			t.Error(err)
		}
		want := eventstore.Fence{Unit: event.Unit{Name: "thing", Key: "a"}, Generation: 1}
		if len(fences) != 1 || fences[0] != want {
			t.Errorf("fences: %v, want %v", fences, want)
		}
		if _, err := rt.Ask(t.Context(), thing.ID("a"), &look{For: time.Second}); err != nil {
			t.Errorf("in time: %v", err)
		}
		if _, err := rt.Ask(t.Context(), thing.ID("a"), &look{For: 20 * time.Second}); !errors.Is(err, ErrUnavailable) {
			t.Errorf("an answer after the lease's deadline: %v", err)
		}
		if err := errors.Join(rt.Stop(t.Context()), store.Stop(t.Context())); err != nil {
			t.Error(err)
		}
	})
}
