package transport

import (
	"context"
	"log/slog"
)

// Gossip tells nodes of one another sooner than the list in the broker does, and while that is out of reach. It only hints: a node that is said to be gone may be there, and keeps
// what it holds. All methods but Start and Stop never block, and may be called concurrently.
type Gossip interface {
	// Start listens, and joins whoever seeds names, again and again, so that a partition that healed merges without a restart. changed is called when Heard gives something else; it
	// must not block.
	Start(ctx context.Context, self Member, seeds func(ctx context.Context) []string, changed func()) error
	// Address is where others reach it, host:port; "" before Start.
	Address() string
	// Update spreads what has changed of this node.
	Update(self Member)
	// Heard gives the members of this application that it has heard of, in order of id, this node not among them.
	Heard() []Heard
	// Stop leaves, so that others know at once, and closes.
	Stop(ctx context.Context) error
}

// Checked is a [Gossip] that tells what is wrong with how it was made before it starts, so that a mistake is told with all others, and nobody hears of a node that cannot start.
type Checked interface {
	// Check may read files; it opens no port and asks nobody.
	Check() error
}

// Sealed is a [Gossip] that seals what it says.
type Sealed interface {
	// Sealing tells how many keys open what is said, and gives a fingerprint of the one that seals; 0 and "" without keys.
	Sealing() (keys int, seals string)
}

// Heard is what gossip says of a member.
type Heard struct {
	Member Member // without Wants
	State  HeardState
}

// HeardState is how a member is, as gossip has it.
type HeardState uint8

const (
	HeardAlive       HeardState = iota
	HeardUnreachable            // it does not answer; that is not to say that it is gone
	HeardLeft                   // it said so
)

// Introducer is a [Broker] that brings along how its nodes reach one another where the application does not say. It does no I/O.
type Introducer interface {
	Introduce(logger *slog.Logger) (Gossip, Peers, error)
}
