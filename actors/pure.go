package actors

import (
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/eventstore"
)

// Apply gives the state after an event, as the runtime folds it, for tests and tools: there is no I/O. A type that has no case
// in Fold is an error, and so is a case that panics.
func (e Entity[S]) Apply(s S, event any) (S, error) {
	st := e.compile().newState().(*entityState[S])
	st.s = s
	if err := st.fold(event); err != nil {
		return s, err
	}
	return st.s, nil
}

// Snapshotted gives a state as it comes back from a snapshot of it, for tests and tools: there is no I/O. What a snapshot does
// not hold is missing.
func (e Entity[S]) Snapshotted(types *codec.Registry, s S) (S, error) {
	st := entityState[S]{s: s}
	enc, err := st.capture(types)
	if err == nil {
		st.s = *new(S)
		err = st.restore(types, &eventstore.Snapshot{Data: enc.Data, Encoding: enc.Encoding})
	}
	return st.s, err
}
