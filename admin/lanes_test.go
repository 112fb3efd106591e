package admin_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// relayed starts the store anew, for a relay.
func (b *bundle) relayed() {
	b.Helper()
	b.must(b.store.Stop(context.Background()))
	_, err := b.store.Start(b.Context(), eventstore.StartOptions{Node: "orders@test", Relayed: true})
	b.must(err)
	r, err := b.store.LoadRegistry(b.Context())
	b.must(err)
	b.must(b.store.SaveRegistry(b.Context(), r, nil))
}

// diverge notes that the newest entry that the broker has of a lane is an event that the store has not.
func (b *bundle) diverge(l event.LaneRef, at event.Sequence, id string) {
	b.Helper()
	held := eventstore.PartFence{Part: l.Part(), Generation: 1}
	_, err := b.store.Raise(b.Context(), []eventstore.Ask{{Unit: held.Part.Unit(), Generation: 1}})
	b.must(err)
	b.must(b.store.Diverge(b.Context(), []eventstore.PartFence{held}, eventstore.Divergence{
		Lane: l, Sequence: at, EventID: id, StoredEventID: "ours", Since: noon.Add(-4 * time.Minute),
	}))
}

func TestALaneThatDivergedIsToldOfEverywhere(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.relayed()
		b.publish("ada", "order.placed", "order.placed")
		if got := b.words(b.desk); strings.Contains(strings.Join(got, " "), "diverged") {
			b.Errorf("diverged before it did: %q", got)
		}
		b.diverge(lane("ada"), 2, "lost")
		b.text("status", b.words(b.desk)[:2], `
			degraded: 1 lane diverged: the broker has events that the store has not, and nothing of it is published, for 4 m, and 2 more problems
			diverged: 1 lane diverged: the broker has events that the store has not, and nothing of it is published, for 4 m: keyhold lanes ls`)

		x, err := b.desk.Why(b.Context(), admin.WhyQuery{Category: "order", Key: "ada"})
		b.must(err)
		b.same("words", x.Words, "nothing stops 2 readers at order:ada; order:ada diverged")
		b.text("because", x.Units[0].Because, `
			2 events are to be applied
			order:ada diverged: of what is not applied, nothing that was not published before comes until a person decides about the lane`)
		b.same("what to do", x.Divergences[0].Next[1].Command, "keyhold lanes adopt order ada --expect 2 --reason …")
		if x, err = b.desk.Why(b.Context(), admin.WhyQuery{Category: "shipping", Key: "ada"}); err != nil || len(x.Divergences) != 1 {
			b.Errorf("asked by handler: %+v, %v", x.Divergences, err)
		}

		b.diverge(lane("bob"), 5, "lost")
		x, err = b.desk.Why(b.Context(), admin.WhyQuery{Category: "order", Key: "bob"}) // of which the store has lost everything
		b.must(err)
		b.same("words of a key that the store has nothing of", x.Words, "no handler reads order:bob; order:bob diverged")
		first, err := b.desk.Divergences(b.Context(), admin.DivergenceQuery{Limit: 1})
		b.must(err)
		second, err := b.desk.Divergences(b.Context(), admin.DivergenceQuery{Limit: 1, Cursor: first.Next})
		b.must(err)
		b.same("pages", []string{first.Items[0].Words, second.Items[0].Words, second.Next}, []string{
			"order:ada diverged, for 4 m: at #2 the broker has event lost, and the store has event ours there; nothing of this lane is published until a person decides",
			"order:bob diverged, for 4 m: at #5 the broker has event lost, and the store has event ours there; nothing of this lane is published until a person decides",
			"",
		})
	})
}

func TestALaneIsAdoptedAsItWasSeen(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.relayed()
		b.publish("ada", "order.placed", "order.placed")
		b.diverge(lane("ada"), 2, "lost")
		ask := admin.AdoptRequest{Category: "order", Key: "ada", Reason: "the backup of monday"}

		other := ask
		other.Expect = &admin.Expect{Place: admin.Place{Category: "order", Key: "ada", Sequence: 1}}
		_, err := b.desk.Adopt(b.Context(), other)
		moved, is := errors.AsType[*admin.MovedError](err)
		if !is || !errors.Is(err, eventstore.ErrStateMoved) || moved.Divergence == nil {
			b.Fatalf("at another event: %v", err)
		}
		if _, err := b.desk.PreviewAdopt(b.Context(), other); !errors.Is(err, eventstore.ErrStateMoved) {
			b.Errorf("preview at another event: %v", err)
		}
		b.same("why", err.Error(), "adopt order:ada: it diverged at #2 (event lost) since 2026-03-14T11:56:00Z: look again, then decide")
		for what, r := range map[string]admin.AdoptRequest{"no reason": {Category: "order", Key: "ada"}, "nothing named": {Reason: "r"}} {
			if _, err := b.desk.Adopt(b.Context(), r); !errors.Is(err, admin.ErrUsage) {
				b.Errorf("%s: %v", what, err)
			}
		}
		for _, r := range []admin.AdoptRequest{{Category: "order", Key: "bob", Reason: "r"}, {Category: "order", Key: "ada", Backfill: true, Reason: "r"}} {
			if _, err := b.desk.Adopt(b.Context(), r); !errors.Is(err, eventstore.ErrNotFound) {
				b.Errorf("%s did not diverge: %v", r.Key, err)
			}
		}

		p, err := b.desk.PreviewAdopt(b.Context(), ask)
		b.must(err)
		if p.Expect == nil || p.Expect.Sequence != 2 || len(p.Warnings) != 2 || !strings.Contains(p.Words, "up to #2") {
			b.Errorf("preview: %+v", p)
		}
		ask.Expect = p.Expect
		done, err := b.desk.Adopt(b.Context(), ask)
		b.must(err)
		if done.Kind != eventstore.ActAdopt || done.Actor != "ada" || done.Reason != "the backup of monday" || done.Assumed || done.At == nil || done.At.EventID != "lost" {
			b.Errorf("done: %+v", done)
		}
		audit, err := b.desk.Audit(b.Context(), admin.AuditQuery{})
		b.must(err)
		b.same("audit", audit.Items, []admin.Audit{done.Audit})
		tail, err := b.store.LaneTail(b.Context(), lane("ada"))
		b.must(err)
		b.same("its records are behind what the broker has", tail, event.Sequence(4))
		if _, err := b.desk.Adopt(b.Context(), ask); !errors.Is(err, eventstore.ErrNotFound) {
			b.Errorf("adopted again: %v", err)
		}
	})
}

// Between the look of a desk and the act another one may have decided, and the lane diverged again.
type raced struct {
	eventstore.Operations
	before func()
}

func (r raced) Adopt(ctx context.Context, seen event.Position, actor, reason string) (eventstore.ActRecord, error) {
	r.before()
	return r.Operations.Adopt(ctx, seen, actor, reason)
}

func TestWhoIsTooLateToAdoptIsShownHowItStands(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.relayed()
		b.publish("ada", "order.placed", "order.placed")
		b.diverge(lane("ada"), 2, "lost")
		late := admin.New(raced{b.store, func() {
			_, err := b.desk.Adopt(b.Context(), admin.AdoptRequest{Category: "order", Key: "ada", Reason: "first"})
			b.must(err)
			b.diverge(lane("ada"), 7, "lost again")
		}}, admin.Options{Actor: "bob", Now: func() time.Time { return noon }})
		_, err := late.Adopt(b.Context(), admin.AdoptRequest{Category: "order", Key: "ada", Reason: "second"})
		moved, is := errors.AsType[*admin.MovedError](err)
		if !is || moved.Divergence == nil || moved.Divergence.At.Sequence != 7 {
			b.Errorf("too late: %v", err)
		}
	})
}

func TestAMissingEventIsExplained(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.publish("ada", "order.placed", "order.placed")
		b.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: ada}, Halt: &eventstore.Halt{
			Unit: ada, Lane: lane("ada"), Sequence: 1, Reason: "missing", Since: noon.Add(-time.Minute),
		}})
		x, err := b.desk.Why(b.Context(), admin.WhyQuery{Category: "order", Key: "ada", Handler: "shipping"})
		b.must(err)
		u := x.Units[0]
		if len(u.Because) != 2 || !strings.HasPrefix(u.Because[1], "neither the store nor the broker has that event") {
			b.Errorf("because: %q", u.Because)
		}
		var commands []string
		for _, s := range u.Next {
			commands = append(commands, s.Command)
		}
		b.text("what to do", commands, `
			keyhold partitions retry shipping ada --expect 1
			keyhold partitions skip shipping ada --expect 1 --reason …`)
	})
}

func TestAProcessThatConsumesNothingIsAProblem(t *testing.T) {
	onStores(t, func(b *bundle) {
		live := &admin.Live{Node: "one", Consumes: func() error { return errors.New("redis is out of reach for 20s") },
			Members: func() []admin.Member { return []admin.Member{{Node: "one", Here: true}, {Node: "two"}} }}
		d := b.deskOf(admin.Options{Live: live})
		s, err := d.Status(b.Context())
		b.must(err)
		if s.Verdict != admin.Degraded || s.Problems[0].Kind != admin.ProblemApart || len(s.Members) != 2 {
			b.Errorf("status: %+v", s)
		}
		live.Consumes = func() error { return nil }
		if s, err = d.Status(b.Context()); err != nil || s.Verdict != admin.Healthy {
			b.Errorf("status: %s, %v", s.Words, err)
		}
	})
}

func TestStatusTellsWhatNodesSayOfThemselves(t *testing.T) {
	onStores(t, func(b *bundle) {
		about := admin.About{ID: "a1", Address: "10.0.0.1:7947", Version: "1.4.0", Up: noon, Units: 12, Draining: true, Since: noon, Keys: 2, Seals: "72cd6e84", Notices: []string{"the certificate ends"}}
		text, err := about.Text()
		b.must(err)
		d := admin.New(several{b.store, []eventstore.Owner{{PID: 1, Node: "one", About: text}, {PID: 2, Node: "two", About: "of a newer program"}, {PID: 3, Node: "three"}}}, admin.Options{})
		s, err := d.Status(b.Context())
		b.must(err)
		b.same("nodes", s.Nodes, []admin.Owner{{PID: 1, Node: "one", About: &about}, {PID: 2, Node: "two"}, {PID: 3, Node: "three"}})
		if s.Verdict != admin.Healthy || len(s.Problems) != 1 || s.Problems[0].Words != "process 1 (one) says: the certificate ends" {
			b.Errorf("problems: %+v", s.Problems)
		}
	})
}

func TestStatusTellsInWhichSettingsNodesDiffer(t *testing.T) {
	onStores(t, func(b *bundle) {
		var all []eventstore.Owner
		for i, settings := range []map[string]string{{"TTL": "15s", "MaxAhead": "10000"}, {"TTL": "5s"}, {"TTL": "15s"}, nil} {
			text, err := admin.About{ID: "a1", Settings: settings}.Text()
			b.must(err)
			all = append(all, eventstore.Owner{PID: i, Node: "one", About: text})
		}
		all = append(all, eventstore.Owner{PID: 9, About: "of another program"})
		s, err := admin.New(several{b.store, all}, admin.Options{}).Status(b.Context())
		b.must(err)
		const words = "nodes differ in TTL, which must be the same on all: 15s at process 0 (one) and 1 more, 5s at process 1 (one); " +
			"a rolling restart that changes it ends that, else set it alike and restart the nodes that have the wrong one"
		if s.Verdict != admin.Healthy || len(s.Problems) != 1 || s.Problems[0].Kind != admin.ProblemUnlike || s.Problems[0].Words != words {
			b.Errorf("problems: %+v", s.Problems)
		}
	})
}

func TestWhatANodeSaysOfItselfIsBounded(t *testing.T) {
	t.Parallel()
	text, err := admin.About{ID: "a1", Address: "10.0.0.1:7947", Notices: []string{strings.Repeat("long ", 1000)}}.Text()
	if err != nil || len(text) > eventstore.MaxAbout || !strings.Contains(text, "10.0.0.1:7947") {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	for want, a := range map[string]admin.About{"takes part": {}, "draining": {Draining: true, Apart: true}, "out of reach": {Apart: true}} {
		if got := a.State(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestWhatIsToBeSeenToSoonIsANote(t *testing.T) {
	onStores(t, func(b *bundle) {
		d := b.deskOf(admin.Options{Live: &admin.Live{Node: "one", Notices: func() []string { return []string{"the certificate ends"} }}})
		s, err := d.Status(b.Context())
		b.must(err)
		if s.Verdict != admin.Healthy || len(s.Problems) != 1 || s.Problems[0].Kind != admin.ProblemSoon || !s.Problems[0].Note || s.Problems[0].Words != "the certificate ends" {
			b.Errorf("status: %+v", s)
		}
	})
}

// several is a store that several processes have open.
type several struct {
	eventstore.Operations
	all []eventstore.Owner
}

func (s several) Overview(ctx context.Context) (eventstore.Overview, error) {
	o, err := s.Operations.Overview(ctx)
	o.Owner, o.Owners = &s.all[len(s.all)-1], s.all
	return o, err
}

func TestStatusNamesTheNodes(t *testing.T) {
	onStores(t, func(b *bundle) {
		d := admin.New(several{b.store, []eventstore.Owner{{PID: 1, Node: "one"}, {PID: 2, Node: "two"}, {PID: 3, Node: "three"}}}, admin.Options{})
		s, err := d.Status(b.Context())
		b.must(err)
		b.same("words", s.Words, "healthy: process 3 (three) and 2 more have the store open, nothing waits for a person")
		b.same("nodes", s.Nodes, []admin.Owner{{PID: 1, Node: "one"}, {PID: 2, Node: "two"}, {PID: 3, Node: "three"}})
		if alone, err := b.desk.Status(b.Context()); err != nil || alone.Nodes != nil {
			b.Errorf("nodes of one: %+v, %v", alone.Nodes, err)
		}
	})
}
