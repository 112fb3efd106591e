// Package past lets tests begin with what has happened: an [Event] is published as if its entity had emitted it. Applications cannot do
// that: the entity would not know of it.
package past

// Event is an event of any category, to be published by whoever has it.
type Event struct{ Event any }

// Unwrapped gives the event itself, without what says where it goes.
func (e Event) Unwrapped() any {
	if inner, ok := e.Event.(interface{ Unwrapped() any }); ok {
		return inner.Unwrapped()
	}
	return e.Event
}
