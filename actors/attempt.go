package actors

import (
	"context"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

type program struct{}

func (h Handler[B]) compile() program { return program{} }
func (e Entity[S]) compile() program  { return program{} }

type attempt struct {
	context.Context
	unit    event.Unit
	version uint64
	meta    Meta
}

func (a *attempt) sql() eventstore.SQL              { return nil }
func (a *attempt) emit(any)                         {}
func (a *attempt) send(Ref, any)                    {}
func (a *attempt) fence() Fence                     { return Fence{} }
func (a *attempt) become(string)                    {}
func (a *attempt) startTimer(string, time.Duration) {}
func (a *attempt) stopTimer(string)                 {}
