package cluster

import (
	"context"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// Names is how the log names members.
var Names = names

// Listed is the broker's list as it was last read.
type Listed = listed

// Pace is that of hand-overs.
type Pace = pace

var (
	NewPace   = newPace
	MostWants = mostWants
)

// Read and Joined are its methods.
var (
	Read   = (*listed).read
	Joined = (*listed).joined
)

const (
	Contenders = contenders
	WideEvery  = wideEvery
)

func Changes(was, now []transport.Member, gone func(id string) string) []string {
	return changes(was, now, gone)
}

// Gone says why a member is gone, of which this is on the list and this was heard.
func Gone(id string, list []transport.Member, heard []transport.Heard) string {
	l := listed{members: list}
	return l.gone(id, heard)
}

// Acquire has a node go for a part, whoever ranks first for it.
func Acquire(ctx context.Context, n *Node, p event.Part) { n.parts.acquire(ctx, []event.Part{p}) }

// GoesFor reports whether a node that stands by for a part goes for it, although somebody's lease lasts for so long.
func GoesFor(n *Node, p event.Part, left time.Duration) bool {
	try, _ := n.parts.look([]event.Part{p}, []time.Duration{left}, map[event.Part]int{p: 1})
	return len(try) > 0
}
