package keyholdtest

import (
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Parked gives what a key of a handler has parked, in order: for what [HandlerTest.ThenParked] does not tell, such as attempts and errors.
func (k *Kit) Parked(handler, key string) []eventstore.Parked {
	k.T.Helper()
	k.start()
	rows, err := k.store.ListParked(k.T.Context(), event.Unit{Name: handler, Key: key}, 0, most)
	if err != nil {
		k.T.Fatalf("parked by %s/%s: %v", handler, key, err)
	}
	return rows
}

// parkedEvents gives the events themselves.
func (k *Kit) parkedEvents(rows []eventstore.Parked) []any {
	k.T.Helper()
	var all []any
	for _, p := range rows {
		got, err := k.store.ReadLane(k.T.Context(), p.Lane, p.Sequence-1, 1)
		if err != nil || len(got) == 0 {
			k.T.Fatalf("read %s #%d: %v", p.Lane, p.Sequence, err)
		}
		e := &got[0]
		v, err := k.types.Decode(codec.Encoded{Type: e.Type, Version: e.Version, Encoding: e.Encoding, Data: e.Data})
		if err != nil {
			v = nil
		}
		all = append(all, v)
	}
	return all
}
