package host

import (
	"context"
	"log/slog"
	"strconv"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
)

// Actor is given the messages of one [Ref], one at a time, in the order of Send. Receive may block.
type Actor interface {
	Receive(message any)
	// Failed says that Receive panicked. No message comes after it; those still in the mailbox are dropped.
	Failed(reason any)
}

// System hosts actors. Make it with [New]; it has no goroutine while no actor has a message.
type System struct {
	system *actor.ActorSystem
	root   *actor.RootContext
	stop   actor.SupervisorStrategy
	slots  *slots
	spawns atomic.Uint64
}

// registries is how many slices of the library's registry of actors are kept, of its 1,024. A slice is 32 maps, each of which keeps the room it once needed and
// is made with room for eight: in all of them a thousand actors that came and went would leave as much as 30,000 that live.
const registries = 8

// New makes a system in which at most limit actors run at once.
func New(limit int) *System {
	system := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(slog.DiscardHandler)
	}))
	slices := system.ProcessRegistry.LocalPIDs
	slices.LocalPIDs = append(slices.LocalPIDs[:0:0], slices.LocalPIDs[:registries]...) // a copy, so that the others go
	stop := actor.NewOneForOneStrategy(0, 0, func(any) actor.Directive { return actor.StopDirective })
	return &System{system: system, root: system.Root, stop: stop, slots: newSlots(limit)}
}

// Stop waits until no actor runs, or ctx is done; then it may be called again. Actors must have been stopped, and nothing may
// be sent any more: what is sent all the same is lost.
func (s *System) Stop(ctx context.Context) error {
	if err := s.slots.stop(ctx); err != nil {
		return err
	}
	if !s.system.IsStopped() {
		s.system.Shutdown()
	}
	return nil
}

// Spawn makes an actor.
func (s *System) Spawn(a Actor) *Ref {
	ref := &Ref{system: s}
	props := actor.PropsFromProducer(func() actor.Actor { return &adapter{to: a} },
		actor.WithGuardian(s.stop),
		actor.WithDispatcher(s.slots),
		actor.WithMailbox(func() actor.Mailbox { return newMailbox(a, s.slots) }))
	pid, err := s.root.SpawnNamed(props, strconv.FormatUint(s.spawns.Add(1), 36))
	if err != nil { // only for a name that exists, and each number is new
		panic(err)
	}
	ref.pid = pid
	return ref
}

// Ref sends to one actor. It may be used concurrently.
type Ref struct {
	system *System
	pid    *actor.PID
}

// Send never blocks. A message sent after Stop may be lost.
func (r *Ref) Send(message any) { r.system.root.Send(r.pid, message) }

// Stop ends the actor after the message in hand.
func (r *Ref) Stop() { r.system.root.Stop(r.pid) }

// Block says that the actor is about to wait for others, or is not worth waiting for: another may run in its place until
// Unblock, which does not wait, so that more than the limit may run for a while. They must come in pairs.
func (r *Ref) Block() { r.system.slots.block() }

// Unblock ends what Block began.
func (r *Ref) Unblock() { r.system.slots.unblock() }

// adapter hides from an actor what the library tells of its life.
type adapter struct{ to Actor }

func (a *adapter) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting:
	default:
		a.to.Receive(m)
	}
}
