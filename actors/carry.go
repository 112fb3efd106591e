package actors

import (
	"context"
	"errors"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/partitions"
)

// carryOut does what the machine waits for, and gives the answer.
func (u *unit) carryOut(e partitions.Effect) partitions.Input {
	switch e := e.(type) {
	case *partitions.WriteTried:
		return u.writeTried(e)
	case *partitions.SuspectAside:
		return u.suspectAside(e)
	case *partitions.Apply:
		if e.Suspect || e.Alone {
			return u.applySuspect(e)
		}
		u.leaveGate()
		return u.applyInside(e)
	}
	u.leaveGate()
	switch e := e.(type) {
	case *partitions.Acquire:
		u.resting = false
		if u.live {
			u.discard() // it served asks at the gate
		}
		return u.acquire(e)
	case *partitions.Recover:
		return u.recover(e)
	case *partitions.Fetch:
		return u.fetch(e)
	case *partitions.Serve:
		return u.serve(e)
	case *partitions.WriteHalt:
		return u.writeHalt(e)
	case *partitions.WriteDead:
		return u.writeDead(e)
	case *partitions.WriteParked:
		return u.writeParked(e)
	case *partitions.FetchAside:
		return u.fetchAside(e)
	case *partitions.SettleAside:
		return u.settleAside(e)
	case *partitions.CommitPassed:
		_, err := u.write(eventstore.Changes{Fence: u.fence(e.Generation), Advance: advances(e.Moves)})
		return partitions.CommitPassedDone{Outcome: outcomeOf(err), Err: err}
	case *partitions.Passivate:
		u.passivate()
		return partitions.PassivateDone{}
	case *partitions.Release:
		u.passivate() // of what served asks at the gate
		return u.release(e)
	}
	panic("actors: the machine asks for " + e.String() + ", which no unit can do")
}

func (u *unit) acquire(e *partitions.Acquire) partitions.Input {
	u.lease.sent = u.run.tick()
	var got partitions.Acquired
	err := u.bounded(func(ctx context.Context) (err error) {
		got, err = u.run.port.Acquire(ctx, u.id, e.Floor)
		return err
	})
	u.forgot = got.Forgot
	return partitions.AcquireDone{Outcome: partitions.OutcomeOf(err), Acquired: got, Err: err}
}

// release gives the lease back. It is not renewed meanwhile: that would be refused, and be taken for a loss.
func (u *unit) release(e *partitions.Release) partitions.Input {
	u.dropLease()
	err := u.bounded(func(ctx context.Context) error {
		return u.run.port.Release(ctx, partitions.Held{Unit: u.id, Generation: e.Generation}, e.IfIdle)
	})
	return partitions.ReleaseDone{Outcome: partitions.OutcomeOf(err), Err: err}
}

func (u *unit) fetch(e *partitions.Fetch) partitions.Input {
	held := partitions.Held{Unit: u.id, Generation: e.Generation}
	read := u.run.port.Fetch
	if e.Ack {
		read = u.run.port.Advance
	}
	if u.machine.Passed() == 0 {
		u.revision = u.run.rt.listing.Load().revision
	}
	var got partitions.Fetched
	err := u.bounded(func(ctx context.Context) (err error) {
		got, err = read(ctx, held, e.Positions, e.Max)
		return err
	})
	if err == nil && u.overtakes(got.Entries) {
		if moved, err := u.listsAreNewer(); err != nil || moved {
			return u.readAgain(err)
		}
	}
	if len(got.Entries) > 0 {
		u.showHead(&got.Entries[0])
	}
	return partitions.FetchDone{Outcome: partitions.OutcomeOf(err), Fetched: got, Err: err}
}

// write commits what no behavior had a part in.
func (u *unit) write(c eventstore.Changes) (eventstore.Committed, error) {
	u.listed(&c)
	done, err := u.run.rt.cfg.Store.Begin(u.id.Name).Commit(u.run.ctx, c)
	u.listsMoved(err)
	return done, err
}

// fence names the unit in a commit; where units are not leased the process's own fence is enough.
func (u *unit) fence(g event.Generation) eventstore.Fence {
	if !u.prog.config.Leased {
		g = 0
	}
	return eventstore.Fence{Unit: u.id, Generation: g}
}

func advances(moves []partitions.Move) []eventstore.Advance {
	if len(moves) == 0 {
		return nil
	}
	all := make([]eventstore.Advance, len(moves))
	for i, m := range moves {
		all[i] = eventstore.Advance{Lane: m.Lane, From: m.From, To: m.To, EventID: m.EventID}
	}
	return all
}

// outcomeOf tells the machine how a call of the store ended. An error of the database itself (full, closed, out of reach) is no
// event's fault: the unit recovers anew and tries again, and nothing is counted.
func outcomeOf(err error) partitions.Outcome {
	switch {
	case err == nil:
		return partitions.OK
	case errors.Is(err, eventstore.ErrStale):
		return partitions.Stale
	case errors.Is(err, eventstore.ErrCheckpointMoved), errors.Is(err, eventstore.ErrAsideMoved), errors.Is(err, eventstore.ErrListMoved):
		return partitions.Moved
	case errors.Is(err, eventstore.ErrUnknownCommit):
		return partitions.Unknown
	}
	return partitions.Failed
}
