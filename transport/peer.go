package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
)

// Peers is the node service: how the nodes of an application, and its clients, reach one another to ask an entity where it is. It only carries: who decides is the node that
// holds the entity's lease. All methods but Address may block on I/O, honour their context, and may be called concurrently between Start and Stop. Only the time that is
// left of a context goes over the wire, so that clocks may differ.
//
// What a caller gets is the answer, or a [*PeerError] that says whether anything may have been done. A message that is too large, or not understood, fails alone: no other
// call of the same link does.
type Peers interface {
	// Start listens, and serves what comes in with s. With a nil s this process only calls: it does not listen. It refuses, saying what to do, an address that others than this
	// machine reach without TLS, unless that was asked for. self goes with every call, and is compared: nodes of another application are denied.
	Start(ctx context.Context, self PeerIdentity, s PeerService) error
	// Address is where others reach this service, host:port; "" before Start, and for one that only calls.
	Address() string
	// Ask has the node at an address decide, and waits for its answer until ctx ends. q.Data is read only and not kept.
	Ask(ctx context.Context, address string, q PeerAsk) (PeerReply, error)
	// Tell is Ask without an answer: nil = the node has taken it into a mailbox.
	Tell(ctx context.Context, address string, q PeerAsk) error
	// Wake says that units may have work. Best effort.
	Wake(ctx context.Context, address string, units []event.Unit) error
	// Probe hands probes on to the node that has what they went along. Best effort: whoever sent them sends them again. probes is read only and not kept.
	Probe(ctx context.Context, address string, probes []PeerProbe) error
	// Status asks a node who it is and whom it knows.
	Status(ctx context.Context, address string) (PeerStatus, error)
	// Stop takes no more, waits until what is inside has its answer or ctx is done, and closes. It is idempotent. After it Start may be called again.
	Stop(ctx context.Context) error
}

// Certified are [Peers] that prove who they are by a certificate of their own.
type Certified interface {
	// Certificate says when it ends, and what is to be done about it when that is soon or is past, else "". The zero time = there is none, or it is not started. It does no I/O.
	Certificate() (ends time.Time, words string)
}

// PeerIdentity says to whom a node or client belongs. What is "" on either side is not compared.
type PeerIdentity struct {
	Application string // its name
	StoreID     string
}

// PeerService answers what comes from other nodes. Its methods are called concurrently, as many at once as the node service allows; ctx ends when the caller's does, or its
// link breaks.
type PeerService interface {
	// Ask decides here, or answers a [*PeerError].
	Ask(ctx context.Context, q PeerAsk) (PeerReply, error)
	Tell(ctx context.Context, q PeerAsk) error
	// Wake never blocks.
	Wake(units []event.Unit)
	// Probe never blocks.
	Probe(probes []PeerProbe)
	Status(ctx context.Context) (PeerStatus, error)
}

// PeerAsk is a command or query on its way to the node that has the entity.
type PeerAsk struct {
	To       event.Unit // kind and id of the entity
	Type     string     // wire name
	Version  int
	Encoding event.Encoding
	Data     []byte

	CommandID     string
	CorrelationID string
	CausationID   string
	Tenant        string
	Trace         event.Trace

	Waiting []event.Unit // that wait for the answer, directly or through others: none of them can be asked
	// ID is that of this ask, if one of Waiting is the behavior that makes it: probes that go along it name it. The zero value = it has none.
	ID PeerAskID
	// Decide: the one who is asked is to try for the entity even if another node ranks first for it: the asker was there, or cannot reach it.
	Decide bool
	// Reads: it is a query, and nothing is done by it, so it may be asked again whatever became of it. It is for whoever routes it, and does not go over the wire.
	Reads bool
	// Where is told where it is asked, if set. It is for whoever routes it as well.
	Where PeerWhere
}

// PeerAskID names an ask among all that nodes ask one another: the one that a node made as its n-th. The zero value names none.
type PeerAskID struct {
	Node   uint64 // drawn at each start
	Number uint64 // from 1
}

// Compare orders ids, so that nodes that do not know of one another choose the same of several asks.
func (id PeerAskID) Compare(other PeerAskID) int {
	return cmp.Or(cmp.Compare(id.Number, other.Number), cmp.Compare(id.Node, other.Node))
}

// PeerWhere is told where an ask is asked. It must not block.
type PeerWhere interface {
	// AskedAt: it is about to be asked at this address; "" = in this process.
	AskedAt(address string)
}

// PeerProbe follows who waits for whom, from node to node, on behalf of an ask that has not begun because its entity waits for an answer itself. Where it comes back to that ask,
// the wait is a circle, and would never end: unless some ask of it was given up, or made only, while the probe was on its way. So it goes the same way once more. What is there both
// times was there in between, all of it at one moment.
type PeerProbe struct {
	Origin PeerAskID  // the ask that it began at
	Way    []PeerStep // what it has gone along so far, in this order; the second time, all there is
	At     int        // place in Way, from 0, of the ask that it came along: one of the node that sends it, waiting at the one that gets it
	Again  bool       // it goes its way for the second time
}

// PeerStep is an ask that a probe went along, of a unit that the one waits for to which it had come: directly, or through others of the same node.
type PeerStep struct {
	Ask  PeerAskID
	Made uint64 // number of the newest ask that the node had made then. What was asked later is no part of the way
}

// PeerReply is the answer of an entity.
type PeerReply struct {
	Type       string // wire name; "" = the behavior answered nil
	Version    int
	Encoding   event.Encoding
	Data       []byte
	Generation event.Generation // of the lease under which it was decided
}

// PeerStatus is what a node says of itself.
type PeerStatus struct {
	Member  Member
	Members []Member // that it knows, itself included
	Ready   string   // "" or why it does not consume
}

// PeerCode says why an ask has no answer.
type PeerCode string

const (
	PeerRejected       PeerCode = "rejected"        // the behavior said no; Text is its reason
	PeerFailed         PeerCode = "failed"          // the behavior's own error; Text is all that is left of it
	PeerPoison         PeerCode = "poison"          // likewise, marked as such
	PeerRetry          PeerCode = "retry"           // likewise, marked as worth another attempt
	PeerAgain          PeerCode = "again"           // likewise, unmarked, for a reason that passes: asking again may succeed
	PeerNotOwner       PeerCode = "not owner"       // Owner has it, or ranks first for it; nothing was done
	PeerUnavailable    PeerCode = "unavailable"     // nobody can be asked now: lease lost, store out of reach, node not reached
	PeerMailboxFull    PeerCode = "mailbox full"    // of the entity; nothing was done
	PeerBusy           PeerCode = "busy"            // the node, or the link to it, has as many calls inside as it takes; nothing was done
	PeerStopping       PeerCode = "stopping"        // the node goes; nothing was done
	PeerUnknownKind    PeerCode = "unknown kind"    // no such entities there
	PeerUnknownType    PeerCode = "unknown type"    // the node does not know the message: another program
	PeerUnknownCommand PeerCode = "unknown command" // the entity has no case for it
	PeerTooLarge       PeerCode = "too large"       // question or answer
	PeerBad            PeerCode = "bad"             // the bytes do not decode, a key is not one
	PeerCycle          PeerCode = "cycle"           // the entity waits for this very ask
	PeerEnded          PeerCode = "ended"           // the time of the ask was over
	PeerDenied         PeerCode = "denied"          // by the node service: certificate, application
)

// PeerError is an ask that got no answer. Where nothing is said of it, nothing was done.
type PeerError struct {
	Code    PeerCode
	Text    string
	Unknown bool // it may have been decided and committed
	Owner   PeerOwner
	Most    time.Duration // with PeerNotOwner: that the owner's lease lasts unless it is renewed; 0 = not known
	Err     error         // here, on this side of the wire, such as why the other was not reached; nil where the other node said it
}

func (e *PeerError) Error() string {
	s := fmt.Sprintf("%s: %s", e.Code, e.Text)
	if e.Unknown {
		s += " (it may have been done)"
	}
	return s
}
func (e *PeerError) Unwrap() error        { return e.Err }
func (e *PeerError) Is(target error) bool { return target == ErrPeer }

// ErrPeer is what a [*PeerError] is.
var ErrPeer = errors.New("another node did not answer the ask")

// PeerOwner says who has an entity, as far as somebody knows. The zero value says nothing.
type PeerOwner struct {
	ID         string // of the member
	Address    string // of its node service; "" = not known, see the members
	Generation event.Generation
}
