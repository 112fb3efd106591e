package eventstoretest

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

var lifecycle = []check{
	{"start says who the store is and what it can do", func(f *fixture) {
		if f.id.StoreID == "" || f.id.StartGeneration == 0 {
			f.Fatalf("identity: %+v", f.id)
		}
		if f.id.Capabilities.Durable && f.harness.Reopen == nil {
			f.Fatal("a durable store needs a harness that opens its data again")
		}
	}},
	{"the store id stays and the start generation grows at every start", func(f *fixture) {
		first := f.id
		for _, end := range []func(){f.stop, f.crash} {
			before := f.id.StartGeneration
			f.restart(end)
			f.same("store id", f.id.StoreID, first.StoreID)
			if f.id.StartGeneration <= before {
				f.Fatalf("start generation went from %d to %d", before, f.id.StartGeneration)
			}
		}
	}},
	{"what was committed is there after a restart, and sequences and versions go on", func(f *fixture) {
		events := f.events("order", "a", 2)
		snapshot := eventstore.Snapshot{Stream: order7, Version: 2, Data: []byte("state")}
		reply := eventstore.Reply{Stream: order7, CommandID: "c-1", Data: []byte("reply"), Time: base}
		f.commit(eventstore.Changes{
			Append:   []eventstore.Append{{Stream: order7, Events: events}},
			Snapshot: &snapshot, Reply: &reply,
		})
		want := f.stream(order7)
		for _, end := range []func(){f.crash, f.stop} {
			f.restart(end)
			f.same("stream", f.stream(order7), want)
			f.same("lane", f.lane(orders), want)
			f.same("snapshot", f.snapshot(order7), &snapshot)
			f.same("reply", f.reply(order7, "c-1"), &reply)
			version := uint64(len(want))
			f.same("tails", f.emit(order7, version, f.event("order", "a")).Tails[0].First, event.Sequence(version+1))
			want = f.stream(order7)
		}
	}},
	{"stop is idempotent, and may come before start", func(f *fixture) {
		f.stop()
		f.stop()
		if f.harness.Reopen != nil {
			f.must(f.harness.Reopen().Stop(f.ctx))
		}
	}},
	{"after stop, and before start, every method says that the store is closed", func(f *fixture) {
		f.stop()
		f.everyMethod(f.store, f.ctx, eventstore.ErrClosed)
		if f.harness.Reopen != nil {
			f.everyMethod(f.harness.Reopen(), f.ctx, eventstore.ErrClosed)
		}
	}},
	{"a context that is done stops every method, and nothing is changed", func(f *fixture) {
		f.publish(f.events("order", "a", 1)...)
		done, cancel := context.WithCancel(f.ctx)
		cancel()
		f.everyMethod(f.store, done, context.Canceled)
		f.same("lane", len(f.lane(orders)), 1)
		f.same("generation", f.recover(shipping).Generation, event.Generation(0))
		f.same("abandoned", f.abandoned(event.Position{}, 10), []eventstore.Abandoned{})
		f.same("registry", f.loadRegistry(), eventstore.Registered{})
	}},
	{"a store that somebody has is refused", func(f *fixture) {
		if f.harness.Reopen == nil {
			f.Skip("nobody else can open this store")
		}
		second := f.harness.Reopen()
		_, err := second.Start(f.ctx, eventstore.StartOptions{Node: "second"})
		var owned *eventstore.OwnedError
		if f.id.Capabilities.Shared {
			f.must(err)
			f.must(second.Stop(f.ctx))
		} else if !errors.As(err, &owned) || !errors.Is(err, eventstore.ErrOwned) {
			f.Fatalf("start gave %v, want an *OwnedError", err)
		}
		f.publish(f.event("order", "a"))
	}},
	{"a value that is started is refused at once, also to who would wait, and goes on with its work", func(f *fixture) {
		f.publish(f.event("order", "a"))
		stopped := f.store
		for range 2 {
			for _, opts := range []eventstore.StartOptions{{}, {Wait: true}, {Relayed: true, Lease: time.Minute}, {Relayed: true, Lease: time.Minute, Wait: true}} {
				opts.Node = "second"
				opts.Observe = func(n eventstore.Notice) { f.Errorf("noticed: %+v", n) }
				_, err := f.store.Start(f.ctx, opts)
				if owned, is := errors.AsType[*eventstore.OwnedError](err); !is || !owned.Here {
					f.Fatalf("start with %+v gave %v, want an *OwnedError of this process", opts, err)
				}
			}
			present, err := f.store.Present(f.ctx)
			f.must(err)
			if len(present) != 1 || present[0].Generation != f.id.StartGeneration {
				f.Fatalf("present: %+v, want start %d alone", present, f.id.StartGeneration)
			}
			f.publish(f.event("order", "a"))
			f.restartRelayed(f.stop)
		}
		f.same("lane", sequences(f.lane(orders)), upTo(3))
		f.stop()
		_, err := stopped.Start(f.ctx, eventstore.StartOptions{}) // by anybody, once it is stopped
		f.must(err)
		f.must(stopped.Stop(f.ctx))
		f.restart(f.stop)
		if f.id.Unclean {
			f.Fatal("a refused start has left it unclean")
		}
	}},
	{"a store is of the application that started on it first, until that has another name", func(f *fixture) {
		as := func(name, formerly string) error {
			f.stop()
			s := f.store
			if f.harness.Reopen != nil {
				s = f.harness.Reopen()
			}
			_, err := s.Start(f.ctx, eventstore.StartOptions{Node: "named", Application: name, Formerly: formerly})
			f.must(s.Stop(f.ctx))
			return err
		}
		f.must(as("shop", ""))
		f.must(as("shop", ""))
		f.must(as("", ""))
		for formerly, name := range map[string]string{"": "bank", "savings": "bank"} {
			var other *eventstore.ApplicationError
			if err := as(name, formerly); !errors.As(err, &other) || other.Has != "shop" || other.Given != "bank" {
				f.Fatalf("start as %q, formerly %q, gave %v, want an *ApplicationError", name, formerly, err)
			}
		}
		f.must(as("store", "shop"))
		f.must(as("store", "shop"))
		if err := as("shop", ""); err == nil {
			f.Fatal("the former name is still that of the store")
		}
		f.restart(f.stop)
	}},
	{"what a process says of itself is there for all, until it says something else or stops", func(f *fixture) {
		own := func() eventstore.Owner {
			present, err := f.store.Present(f.ctx)
			f.must(err)
			o, err := f.store.Overview(f.ctx)
			f.must(err)
			f.same("owners", o.Owners, present)
			if len(present) != 1 || present[0].Generation != f.id.StartGeneration {
				f.Fatalf("present: %+v, want start %d alone", present, f.id.StartGeneration)
			}
			return present[0]
		}
		clean := own()
		f.must(f.store.Say(f.ctx, "no broker", base))
		troubled := clean
		troubled.Trouble, troubled.Since = "no broker", base
		f.same("in trouble", own(), troubled)
		f.must(f.store.Say(f.ctx, "", base))
		f.same("again as before", own(), clean)
		const about = `{"id": "n-1", "of": "größer"}`
		f.must(f.store.Describe(f.ctx, about))
		described := clean
		described.About = about
		f.same("described", own(), described)
		f.must(f.store.Say(f.ctx, "no broker", base))
		f.restart(f.stop)
		f.same("after another start", own().Trouble+own().About, "")
	}},
	{"with Wait a start says that it waits, and gets the store when its owner stops", func(f *fixture) {
		f.waiting(f.ctx, func(result <-chan error) {
			f.stop()
			f.must(<-result)
		})
	}},
	{"a start that waits ends with its context", func(f *fixture) {
		ctx, cancel := context.WithCancel(f.ctx)
		f.waiting(ctx, func(result <-chan error) {
			cancel()
			f.is(<-result, context.Canceled)
			f.publish(f.event("order", "a"))
		})
	}},
	{"a unit of work of an earlier start commits nothing", func(f *fixture) {
		tx := f.store.Begin(f.Name())
		f.restart(f.stop)
		_, err := tx.Commit(f.ctx, eventstore.Changes{Publish: f.events("order", "a", 1)})
		if !errors.Is(err, eventstore.ErrStale) && !errors.Is(err, eventstore.ErrClosed) {
			f.Fatalf("commit gave %v, want ErrStale or ErrClosed", err)
		}
		f.same("tail", f.tail(orders), event.Sequence(0))
	}},
	{"stop waits for the commits in hand: those that succeeded are there", func(f *fixture) {
		const writers = 4
		var (
			group     sync.WaitGroup
			committed atomic.Int64
			store     = f.store
		)
		busy := make(chan struct{}, 1024)
		for range writers {
			group.Go(func() {
				for {
					_, err := store.Begin("writer").Commit(f.ctx, eventstore.Changes{Publish: f.events("order", "a", 1)})
					if errors.Is(err, eventstore.ErrClosed) {
						return
					}
					if err != nil {
						f.Errorf("commit: %v", err)
						return
					}
					committed.Add(1)
					select {
					case busy <- struct{}{}:
					default:
					}
				}
			})
		}
		for range 3 * writers {
			<-busy
		}
		f.restart(func() {
			f.stop()
			group.Wait()
		})
		f.same("tail", f.tail(orders), event.Sequence(committed.Load()))
	}},
}

// waiting starts a second store, runs then once it says that it waits for the first one, and hands out how Start ends.
func (f *fixture) waiting(ctx context.Context, then func(result <-chan error)) {
	f.Helper()
	if f.id.Capabilities.Shared {
		f.Skip("nobody waits for this store")
	}
	f.waitingAs(ctx, eventstore.StartOptions{}, then)
}

func (f *fixture) waitingAs(ctx context.Context, opts eventstore.StartOptions, then func(result <-chan error)) {
	f.Helper()
	if f.harness.Reopen == nil {
		f.Skip("nobody else can open this store")
	}
	var (
		group  sync.WaitGroup
		next   = f.harness.Reopen()
		waits  = make(chan struct{}, 16)
		result = make(chan error, 1)
	)
	group.Go(func() {
		opts.Node, opts.Wait = "second", true
		opts.Observe = func(n eventstore.Notice) {
			if n.What == "waiting for owner" {
				waits <- struct{}{}
			}
		}
		_, err := next.Start(ctx, opts)
		result <- err
	})
	f.Cleanup(func() {
		group.Wait()
		if err := next.Stop(context.Background()); err != nil {
			f.Errorf("stop: %v", err)
		}
	})
	select {
	case <-waits:
		then(result)
	case err := <-result:
		f.Fatalf("start did not wait: %v", err)
	}
}

// everyMethod calls every method that does something and checks its error.
func (f *fixture) everyMethod(s eventstore.Store, ctx context.Context, want error) {
	f.Helper()
	calls := map[string]func() error{
		"Commit": func() error {
			_, err := s.Begin("closed").Commit(ctx, eventstore.Changes{Publish: f.events("order", "a", 1)})
			return err
		},
		"PublishIn":    func() error { _, err := s.PublishIn(ctx, nil, f.events("order", "a", 1)); return err },
		"ReadStream":   func() error { _, err := s.ReadStream(ctx, order7, 0, 1); return err },
		"ReadSnapshot": func() error { _, err := s.ReadSnapshot(ctx, order7); return err },
		"ReadReply":    func() error { _, err := s.ReadReply(ctx, order7, "c-1"); return err },
		"ReadAll":      func() error { _, _, err := s.ReadAll(ctx, "", nil, 1); return err },
		"ReadAll of a category": func() error {
			_, _, err := s.ReadAll(ctx, "", []string{"order"}, 1)
			return err
		},
		"ReadLane":  func() error { _, err := s.ReadLane(ctx, orders, 0, 1); return err },
		"LaneTail":  func() error { _, err := s.LaneTail(ctx, orders); return err },
		"Abandon":   func() error { return s.Abandon(ctx, orders, 1, "bad") },
		"Abandoned": func() error { _, err := s.Abandoned(ctx, event.Position{}, 1); return err },
		"Present":   func() error { _, err := s.Present(ctx); return err },
		"Say":       func() error { return s.Say(ctx, "broken", base) },
		"Describe":  func() error { return s.Describe(ctx, "a node") },
		"Recover":   func() error { _, err := s.Recover(ctx, []eventstore.Ask{{Unit: shipping}}); return err },
		"Raise": func() error {
			_, err := s.Raise(ctx, []eventstore.Ask{{Unit: shipping, Generation: 1}})
			return err
		},
		"Unpassed":     func() error { _, err := s.Unpassed(ctx, "shipping", "order", event.LaneRef{}, 1); return err },
		"Purge":        func() error { _, err := s.Purge(ctx, time.Now(), 1); return err },
		"LoadRegistry": func() error { _, err := s.LoadRegistry(ctx); return err },
		"SaveRegistry": func() error {
			return s.SaveRegistry(ctx, eventstore.Registered{Categories: []eventstore.Category{{Name: "order"}}}, nil)
		},
		"CategoryHasEvents": func() error { _, err := s.CategoryHasEvents(ctx, "order"); return err },
		"ListHalts":         func() error { _, err := s.ListHalts(ctx, "", event.Unit{}, 1); return err },
		"ListDead":          func() error { _, err := s.ListDead(ctx, "shipping", event.Position{}, 1); return err },
	}
	maps.Copy(calls, operations(s, ctx))
	maps.Copy(calls, relaying(s, ctx))
	if f.id.Capabilities.SQL {
		calls["SQL"] = func() error {
			tx := s.Begin("closed")
			_, err := tx.SQL(ctx)
			return errors.Join(err, tx.Rollback())
		}
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, want) {
			f.Errorf("%s gave %v, want %v", name, err, want)
		}
	}
}
