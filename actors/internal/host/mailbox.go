package host

import (
	"errors"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/keyhold/keyhold/actors/internal/ring"
)

// mailbox is an actor.Mailbox that, after each message, gives way to actors that wait for a slot.
type mailbox struct {
	owner   Actor
	slots   *slots
	invoker actor.MessageInvoker
	process func() // m.run, made once

	mu struct {
		sync.Mutex
		system    ring.Queue[any]
		user      ring.Queue[any]
		scheduled bool // a goroutine runs it, or it waits for one
		suspended bool // after a failure: system messages only
	}
}

func newMailbox(owner Actor, s *slots) *mailbox {
	m := &mailbox{owner: owner, slots: s}
	m.process = m.run
	return m
}

func (m *mailbox) RegisterHandlers(invoker actor.MessageInvoker, _ actor.Dispatcher) {
	m.invoker = invoker
}
func (m *mailbox) Start() {}

func (m *mailbox) UserMessageCount() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.user.Len()
}

func (m *mailbox) PostUserMessage(message any) {
	m.mu.Lock()
	m.mu.user.Push(message)
	m.scheduleAndUnlock(!m.mu.suspended)
}

func (m *mailbox) PostSystemMessage(message any) {
	m.mu.Lock()
	m.mu.system.Push(message)
	m.scheduleAndUnlock(true)
}

func (m *mailbox) scheduleAndUnlock(wanted bool) {
	wanted = wanted && !m.mu.scheduled
	if wanted {
		m.mu.scheduled = true
	}
	m.mu.Unlock()
	if wanted {
		m.slots.Schedule(m.process)
	}
}

func (m *mailbox) run() {
	for {
		message, system := m.next()
		if message == nil {
			return
		}
		m.invoke(message, system)
		if m.slots.wanted() {
			m.slots.Schedule(m.process)
			return
		}
	}
}

// next takes the next message; nil = there is none, and the mailbox is no longer scheduled.
func (m *mailbox) next() (message any, system bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.system.Len() > 0 {
		return m.mu.system.Pop(), true
	}
	if !m.mu.suspended && m.mu.user.Len() > 0 {
		return m.mu.user.Pop(), false
	}
	m.mu.scheduled = false
	return nil, false
}

func (m *mailbox) invoke(message any, system bool) {
	returned := false
	defer func() {
		if returned {
			return
		}
		reason := recover()
		ended := reason == nil
		if ended {
			reason = ErrGoexit
		}
		m.invoker.EscalateFailure(reason, message)
		m.owner.Failed(reason)
		if ended {
			m.slots.Schedule(m.process) // this goroutine does not come back to run
		}
	}()
	m.dispatch(message, system)
	returned = true
}

// ErrGoexit is what [Actor.Failed] gets for an actor whose goroutine was ended.
var ErrGoexit = errors.New("the goroutine of the actor was ended: runtime.Goexit, or FailNow of a test, was called in it")

func (m *mailbox) dispatch(message any, system bool) {
	if !system {
		m.invoker.InvokeUserMessage(message)
		return
	}
	switch message.(type) {
	case *actor.SuspendMailbox:
		m.suspend(true)
	case *actor.ResumeMailbox:
		m.suspend(false)
	default:
		m.invoker.InvokeSystemMessage(message)
	}
}

func (m *mailbox) suspend(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.suspended = on
}
