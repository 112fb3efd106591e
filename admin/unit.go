package admin

import (
	"context"
	"time"

	"github.com/keyhold/keyhold/event"
)

// Unit is all that is known of one unit: a handler and a key, or an entity kind and an id.
type Unit struct {
	Handler      string     `json:"handler"`
	Key          string     `json:"key"`
	Kind         string     `json:"kind"`
	State        string     `json:"state"` // "halted", "paused", "parking", "trying", "waiting" (for a newer program), "behind", "done"
	Words        string     `json:"words"` // why, in one line
	Generation   uint64     `json:"generation"`
	Owner        *Owner     `json:"owner,omitempty"` // nil when nobody has the store open
	Halt         *Halt      `json:"halt,omitempty"`
	Pause        *Pause     `json:"pause,omitempty"`
	HandlerPause *Pause     `json:"handler_pause,omitempty"`
	Parking      *Parking   `json:"parking,omitempty"`
	Tried        *Tried     `json:"tried,omitempty"`
	Dead         int        `json:"dead"` // dead letters, counted up to 1,000
	Lanes        []LaneView `json:"lanes"`
	Lag          uint64     `json:"lag"`                // over all lanes
	Activity     *Activity  `json:"activity,omitempty"` // in this process; nil when it is at rest, or runs in another
	Waiting      []Event    `json:"waiting"`            // the next few events, in the order in which they will be applied
	// Expect is what an act on the unit, decided on this view, gives as [ActRequest.Expect].
	Expect *Expect `json:"expect,omitempty"`
}

// LaneView is how far a unit is with a lane.
type LaneView struct {
	Category   string `json:"category"`
	Key        string `json:"key"`
	Backfill   bool   `json:"backfill,omitempty"`
	Tail       uint64 `json:"tail"`
	Checkpoint uint64 `json:"checkpoint"`
	Lag        uint64 `json:"lag"`
	NextType   string `json:"next_type,omitempty"` // of the first event above the checkpoint
}

// Tried is what is known of attempts at the next event of a unit.
type Tried struct {
	At          Place     `json:"at"`
	Type        string    `json:"type"`
	Attempts    int       `json:"attempts"` // that failed
	Error       string    `json:"error,omitempty"`
	Last        time.Time `json:"last"`
	Again       time.Time `json:"again,omitzero"`        // when the next is due, where that is known
	Suspicions  int       `json:"suspicions,omitempty"`  // times the process may have died of it
	CrashedLone int       `json:"crashed_lone,omitzero"` // of them, with no other suspect beside it
}

// Activity is what a unit is doing in this process.
type Activity struct {
	State   string    `json:"state"` // of the unit's machine: "applying", "backoff", "recovering", ...
	At      *Place    `json:"at,omitempty"`
	Type    string    `json:"type,omitempty"`
	Attempt int       `json:"attempt,omitempty"` // at At, from 1
	Since   time.Time `json:"since,omitzero"`    // it has been doing that
	Again   time.Time `json:"again,omitzero"`    // the next attempt
	Asks    int       `json:"asks,omitempty"`    // that wait, of an entity
}

// ShowOptions says how much of a unit is shown.
type ShowOptions struct {
	Waiting int  // how many of the next events; 0 = 5, -1 = none, at most 100
	Payload bool // what they hold
}

// Unit shows one unit. A name that the store does not know is a [*NotFoundError]; a key that it has never seen is a unit at rest.
func (d *Desk) Unit(ctx context.Context, u event.Unit, opts ShowOptions) (Unit, error) {
	return Unit{}, errUnbuilt
}
