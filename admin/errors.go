package admin

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/keyhold/keyhold/eventstore"
)

var (
	// ErrNotHalted: the unit has no halt to lift. See [Resume].
	ErrNotHalted = errors.New("unit is not halted")
	// ErrUsage is what a [*UsageError] is.
	ErrUsage = errors.New("cannot be asked like this")
)

// NotFoundError: there is nothing of that name. It is [eventstore.ErrNotFound].
type NotFoundError struct {
	What  string   `json:"what"` // "handler or entity kind", "category", "job", "dead letter", "event"
	Name  string   `json:"name"`
	Known []string `json:"known,omitempty"` // names there are, in order, where they are few enough to tell
	Words string   `json:"words,omitempty"` // instead of "no X is called Y", where more can be said
	Hint  string   `json:"hint,omitempty"`  // what may have been meant: "o-17 is an order: keyhold events cat --entity order/o-17"
	Empty bool     `json:"empty,omitempty"` // no application has registered anything in the store so far
}

func (e *NotFoundError) Error() string {
	if e.Words != "" {
		return e.Words
	}
	msg := fmt.Sprintf("no %s is called %q", e.What, e.Name)
	if len(e.Known) == 0 {
		return msg
	}
	quoted := make([]string, len(e.Known))
	for i, k := range e.Known {
		quoted[i] = strconv.Quote(k)
	}
	return msg + " (known: " + strings.Join(quoted, ", ") + ")"
}

// Is reports whether target is [eventstore.ErrNotFound].
func (e *NotFoundError) Is(target error) bool { return target == eventstore.ErrNotFound }

// MovedError: the state is not the one that an act was decided on. Nothing was changed. It is [eventstore.ErrStateMoved].
type MovedError struct {
	Act string `json:"act"` // such as "skip shipping client-17"
	Why string `json:"why"` // in words: "it is halted at order:client-17 #6"
	Now *Unit  `json:"now,omitempty"`
	// Instead of Now, for what is done to something else.
	Job        *Job        `json:"job,omitempty"`
	Handler    *Handler    `json:"handler,omitempty"`
	Projection *Projection `json:"projection,omitempty"`
	Divergence *Divergence `json:"divergence,omitempty"`
	// Hint is the act that the present state asks for, where another was tried: "it is halted: keyhold partitions retry shipping client-17".
	Hint string `json:"hint,omitempty"`

	err error
}

func (e *MovedError) Error() string { return e.Act + ": " + e.Why + ": look again, then decide" }
func (e *MovedError) Unwrap() error { return e.err }

// Is reports whether target is [eventstore.ErrStateMoved].
func (e *MovedError) Is(target error) bool { return target == eventstore.ErrStateMoved }

// inUseError: a running program has it. It is [eventstore.ErrInUse].
type inUseError struct {
	what, name string
	owner      *Owner
}

func (e *inUseError) Error() string {
	by := "a running program: stop that"
	if e.owner != nil {
		by = e.owner.String() + ": stop it"
	}
	return fmt.Sprintf("%s %s is in use by %s, or start a program without this %s", e.what, e.name, by, e.what)
}

// Is reports whether target is [eventstore.ErrInUse].
func (e *inUseError) Is(target error) bool { return target == eventstore.ErrInUse }

// UsageError: a request that no state of the store would make right. It is [ErrUsage].
type UsageError struct {
	Faults []string `json:"faults"` // all of them
}

func (e *UsageError) Error() string { return strings.Join(e.Faults, "; ") }

// Is reports whether target is [ErrUsage].
func (e *UsageError) Is(target error) bool { return target == ErrUsage }
