package keyholdtest

import (
	"context"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// recorder is a store that tells the journal what was committed. It lies beneath the faults, so it sees what happened, whatever the
// application was told.
type recorder struct {
	eventstore.Store
	journal *journal
	spoil   atomic.Bool // the events of the next commit
	jobs    jobs
}

func (r *recorder) Begin(who string) eventstore.Tx {
	return &recorderTx{Tx: r.Store.Begin(who), recorder: r}
}

type recorderTx struct {
	eventstore.Tx
	recorder *recorder
}

func (t *recorderTx) Commit(ctx context.Context, c eventstore.Changes) (eventstore.Committed, error) {
	if t.recorder.spoil.Swap(false) {
		c.Publish = slices.Clone(c.Publish)
		for i := range c.Publish {
			c.Publish[i].Data = []byte{0xff} // neither JSON nor protobuf
		}
	}
	done, err := t.Tx.Commit(ctx, c)
	if err == nil {
		t.recorder.journal.committed(c)
	}
	return done, err
}

func (k *Kit) decode(e *event.Envelope) any {
	k.T.Helper()
	v, err := k.types.Decode(codec.Encoded{Type: e.Type, Version: e.Version, Encoding: e.Encoding, Data: e.Data})
	if err != nil {
		k.T.Fatalf("%s of %s: %v", e.Type, e.Ref(), err)
	}
	return v
}

// newest gives an event of an old version as what upcasters make of it, once it was stored: as everybody would be given it.
func (k *Kit) newest(e any) any {
	k.T.Helper()
	switch e := e.(type) {
	case keyhold.Backfilled:
		return keyhold.Backfill(k.newest(e.Event))
	case keyhold.Keyed:
		return keyhold.For(e.ID, k.newest(e.Event))
	}
	if _, old := k.types.Upcast(reflect.TypeOf(e)); !old {
		return e
	}
	enc, err := k.types.Encode(e)
	if err != nil {
		k.T.Fatalf("given %T: %v", e, err)
	}
	return plain(k.decode(&event.Envelope{Type: enc.Type, Version: enc.Version, Encoding: enc.Encoding, Data: enc.Data}))
}
