package actors

import (
	"errors"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/partitions"
)

// behavior is the part of a unit that is thrown away when an attempt fails: a handler's instance, or an entity's state.
type behavior struct {
	instance instance // of a handler
	state    state    // of an entity
	live     bool
	mode     string
	timers   map[string]*unitTimer

	version    uint64 // of the state
	snapshotAt uint64 // version of the newest snapshot
	stale      bool   // the state may have been changed by a case, and is to be read again
}

// unitTimer is a timer of a behavior.
type unitTimer struct {
	name  string
	alarm alarm
}

func (b *behavior) init(p *program) {
	if p.entity() {
		b.state = p.newState()
	} else {
		b.instance = p.newInstance()
	}
}

// ensure makes the instance or reads the state, unless it is there and good.
func (u *unit) ensure(g event.Generation) error {
	switch {
	case u.live && !u.stale:
		return nil
	case u.live:
		u.open.Store(false)
		err := u.load()
		u.open.Store(err == nil)
		return err
	}
	u.mode, u.stale = "", false
	var err error
	if u.prog.entity() {
		err = u.awaken(g)
	} else {
		err = u.construct(g)
	}
	if err != nil {
		return err // the machine has what is left of it discarded
	}
	u.live = true
	u.open.Store(true)
	observe(u.run.rt.cfg.Observer.Activated, u.id)
	return nil
}

// construct makes a handler's instance, and runs OnActivate in a unit of work of its own.
func (u *unit) construct(g event.Generation) error {
	err := protect(func() error {
		u.instance.construct(u.id.Key)
		return nil
	})
	if err != nil || !u.instance.activates() {
		return err
	}
	a := u.attempt(g, u.context())
	r := u.execute(a, func() error { return u.instance.activate(Context{UnitOfWork{a}}) }, u.changes)
	u.tell(r.tails)
	return r.err
}

// awaken reads an entity's state and runs OnActivate.
func (u *unit) awaken(g event.Generation) error {
	if err := u.load(); err != nil {
		return err
	}
	a := u.attempt(g, u.context())
	a.reads = true
	defer a.finish()
	_, err := u.call(a, func() error { return u.state.activate(Query{a}, u.id.Key) })
	return err
}

// page is how many events are read at once.
const page = 1000

// errUnread: the state could not be read, through no fault of its events.
var errUnread = errors.New("state was not read")

// load reads the state: the newest snapshot that can be used, and the events after it.
func (u *unit) load() error {
	err := u.restore()
	for n := page; err == nil && n == page; {
		n, err = u.readOn()
	}
	if err != nil {
		return fmt.Errorf("read the state of %s: %w", u.id, err)
	}
	u.stale = false
	return nil
}

// readOn folds the next page of events, and gives their number.
func (u *unit) readOn() (int, error) {
	events, err := u.run.rt.cfg.Store.ReadStream(u.run.ctx, u.stream(), u.version, page)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errUnread, err)
	}
	for i := range events {
		e := &events[i]
		if err := u.refold(e); err != nil {
			return 0, fmt.Errorf("event %d, %q: %w", e.StreamVersion, e.Type, err)
		}
		u.version = e.StreamVersion
	}
	return len(events), nil
}

func (u *unit) refold(e *event.Envelope) error {
	if e.Void() {
		return nil
	}
	v, err := u.decode(e)
	switch {
	case errors.Is(err, codec.ErrNewer): // a newer program has been at work here
		return fmt.Errorf("%w: %w", errUnread, err)
	case err != nil:
		return err
	}
	return u.state.fold(v)
}

func (u *unit) stream() event.Stream { return event.Stream{Kind: u.id.Name, ID: u.id.Key} }

// restore begins with the newest snapshot, or with nothing when there is none that can be used.
func (u *unit) restore() error {
	snapshot, err := u.run.rt.cfg.Store.ReadSnapshot(u.run.ctx, u.stream())
	if err != nil {
		return fmt.Errorf("%w: %w", errUnread, err)
	}
	u.version, u.snapshotAt = 0, 0
	if snapshot != nil && snapshot.StateVersion == u.prog.desc.StateVersion {
		err := protect(func() error { return u.state.restore(u.run.rt.cfg.Codec, snapshot) })
		if err == nil {
			u.version, u.snapshotAt = snapshot.Version, snapshot.Version
			return nil
		}
		u.run.rt.cfg.Logger.Warn("snapshot is of no use: folding all events", "entity", u.text, "version", snapshot.Version, "error", err)
	}
	return protect(func() error {
		u.state.reset(u.id.Key)
		return nil
	})
}

// decode runs code of the application: the UnmarshalJSON of its types.
func (u *unit) decode(e *event.Envelope) (v any, err error) {
	if e.Type == event.Malformed {
		return nil, event.MalformedIn(e)
	}
	defer func() {
		if p := recover(); p != nil {
			v, err = nil, fmt.Errorf("decode %q: %w", e.Type, newPanicError(p))
		}
	}()
	return u.run.rt.cfg.Codec.Decode(codec.Encoded{Type: e.Type, Version: e.Version, Encoding: e.Encoding, Data: e.Data})
}

// snapshot gives the state as it is, when it is time to keep it. It goes into the next commit, before that one's own events.
func (u *unit) snapshot() *eventstore.Snapshot {
	if u.prog.every == 0 || u.version < u.snapshotAt+uint64(u.prog.every) {
		return nil
	}
	var enc codec.Encoded
	err := protect(func() (err error) {
		enc, err = u.state.capture(u.run.rt.cfg.Codec)
		return err
	})
	if err != nil {
		u.run.rt.cfg.Logger.Warn("no snapshot: the entity will be folded from all its events", "entity", u.text, "error", err)
		u.snapshotAt = u.version // not again for a while
		return nil
	}
	return &eventstore.Snapshot{
		Stream: u.stream(), Version: u.version, StateVersion: u.prog.desc.StateVersion, Data: enc.Data, Encoding: enc.Encoding,
	}
}

// discard throws the behavior away without a word to it.
func (u *unit) discard() {
	u.live, u.stale, u.mode = false, false, ""
	u.open.Store(false)
	u.dropTimers()
	if u.instance != nil {
		u.instance = u.prog.newInstance()
	} else {
		u.state = u.prog.newState()
	}
}

// passivate puts the behavior away.
func (u *unit) passivate() {
	if !u.live {
		return
	}
	a := u.attempt(0, u.context())
	a.reads = true
	_, _ = u.call(a, func() error {
		if u.prog.entity() {
			u.state.passivate(Query{a}, u.id.Key)
		} else {
			u.instance.passivate()
		}
		return nil
	})
	a.finish()
	u.discard()
	observe(u.run.rt.cfg.Observer.Passivated, u.id)
}

func (u *unit) panicked(err error) {
	var p *PanicError
	if err != nil && errors.As(err, &p) {
		observe2(u.run.rt.cfg.Observer.Panicked, u.id, p)
	}
}

// adopt does what the behavior asked for besides the commit, now that it has happened.
func (u *unit) adopt(w *work) {
	if w.rare == nil {
		return
	}
	if w.rare.mode != nil {
		u.mode = *w.rare.mode
	}
	for _, c := range w.rare.timers {
		u.stopTimer(c.name)
		if !c.stop {
			u.startTimer(c)
		}
	}
}

func (u *unit) startTimer(c timerChange) {
	t := &unitTimer{name: c.name}
	t.alarm.ring = func() { u.post(func(b *inbox) { b.mu.ticks.Push(t) }) }
	if u.timers == nil {
		u.timers = map[string]*unitTimer{}
	}
	u.timers[c.name] = t
	u.run.alarms.set(&t.alarm, time.Now().Add(c.after))
}

func (u *unit) stopTimer(name string) {
	if t := u.timers[name]; t != nil {
		u.run.alarms.clear(&t.alarm)
		delete(u.timers, name)
	}
}

func (u *unit) dropTimers() {
	for name := range u.timers {
		u.stopTimer(name)
	}
}

// tick runs OnTimer in a unit of work of its own. A timer that was stopped, or whose behavior is gone, may still have rung.
func (u *unit) tick(t *unitTimer, g event.Generation) (partitions.Outcome, error) {
	if u.timers[t.name] != t {
		return partitions.OK, nil
	}
	delete(u.timers, t.name)
	if err := u.ensure(g); err != nil {
		return failedOutcome(err), err
	}
	a := u.attempt(g, u.context())
	r := u.execute(a, func() error {
		if u.prog.entity() {
			return u.state.timer(Command{UnitOfWork{a}}, t.name)
		}
		return u.instance.timer(Context{UnitOfWork{a}}, t.name)
	}, u.changes)
	u.tell(r.tails)
	if r.err == nil {
		return partitions.OK, nil
	}
	u.run.rt.cfg.Observer.timerFailed(u.id, t.name, r.err)
	if r.own && isRejected(r.err) {
		u.spoiled()
		return partitions.OK, nil
	}
	return r.outcome, r.err
}

// spoiled notes that a case has seen the state and nothing was committed. Where S shares memory it may have been changed.
func (u *unit) spoiled() {
	u.stale = u.stale || u.state != nil && u.state.shares()
}
