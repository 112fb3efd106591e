package main

import (
	"encoding/json"

	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/examples/orders"
)

// call is one line on the worker's standard input: something to do. Calls are done concurrently.
type call struct {
	ID     uint64 `json:"id"`
	Verb   verb   `json:"verb"`
	Order  order  `json:"order,omitzero"`  // place, pay, how
	Client string `json:"client,omitzero"` // resume
}

type verb string

const (
	place    verb = "place"    // ask the order
	pay      verb = "pay"      // ask the payment
	progress verb = "progress" // count what the tables hold
	halts    verb = "halts"    // list what is halted
	mend     verb = "mend"     // talk the carrier round
	resume   verb = "resume"   // lift the halt of a client
	how      verb = "how"      // ask the order how it is
	hears    verb = "hears"    // say who is heard by gossip
)

// answer is one line on its standard output: what came of a call. The one with ID 0 says that the worker is up.
type answer struct {
	ID    uint64 `json:"id"`
	Error string `json:"error,omitzero"`
	// Again: nothing was done, and asking again may succeed.
	Again  bool              `json:"again,omitzero"`
	Counts counts            `json:"counts,omitzero"`
	Halts  []eventstore.Halt `json:"halts,omitzero"`

	View      orders.View `json:"view,omitzero"`
	Elsewhere bool        `json:"elsewhere,omitzero"` // another node answered
	Hears     []string    `json:"hears,omitzero"`     // names of nodes
}

// counts is what the application's tables hold.
type counts struct {
	Shipped map[string]int `json:"shipped"` // shipments by client
	Counted int            `json:"counted"` // orders in the read model
	Paid    int            `json:"paid"`    // and those of them that are paid
}

// total is the number of shipments.
func (c counts) total() int {
	n := 0
	for _, shipped := range c.Shipped {
		n += shipped
	}
	return n
}

// line gives v as a line. What is sent here can be encoded.
func line(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return append(data, '\n')
}
