package actors

import (
	"context"
	"errors"
	"fmt"

	"github.com/keyhold/keyhold/transport"
)

// RemoteError is what is left of an error that comes from another node, or from the way there. It is what the error was of those errors of
// this package that say why an ask has no answer, such as [ErrMailboxFull]; of a behavior's own error nothing is left but its text, its
// mark ([Poison], [Retry]), and whether it is [Retryable].
type RemoteError struct {
	Code transport.PeerCode
	Text string
	Err  error // of this side of the wire, such as the end of a context; may be nil
}

func (e *RemoteError) Error() string { return e.Text }
func (e *RemoteError) Unwrap() error { return e.Err }

// Is compares with the errors of this package, and, where the time of the ask was over elsewhere, with context.DeadlineExceeded.
func (e *RemoteError) Is(target error) bool {
	if e.Code == transport.PeerEnded && e.Err == nil {
		return target == context.DeadlineExceeded
	}
	of := arrivesAs[e.Code]
	return of != nil && of == target
}

// arrivesAs is what an error is that arrives with a code, where there is such an error.
var arrivesAs = map[transport.PeerCode]error{
	transport.PeerUnavailable:    ErrUnavailable,
	transport.PeerBusy:           ErrUnavailable,
	transport.PeerMailboxFull:    ErrMailboxFull,
	transport.PeerStopping:       ErrStopping,
	transport.PeerUnknownKind:    ErrUnknownEntity,
	transport.PeerUnknownType:    ErrUnavailable, // the other node runs another program, an older one in a rolling deploy: that passes
	transport.PeerUnknownCommand: ErrUnknownCommand,
	transport.PeerCycle:          ErrAskCycle,
}

// toPeer gives what came of an ask of this node as it goes to the one that asked. err is fresh: one of the runtime's own is an [*AskError]
// that does not say yet whom it is about. A behavior's error never says where an entity is, or whether its node can be asked: it may
// speak of another entity.
func toPeer(to Ref, command any, err error) *transport.PeerError {
	ask, ok := err.(*AskError)
	if !ok || ask.To != (Ref{}) {
		return ownToPeer(err)
	}
	out := &transport.PeerError{Code: peerCode(ask.Err), Text: ask.Err.Error(), Unknown: ask.Unknown}
	var held *HeldError
	switch {
	case out.Code == transport.PeerNotOwner && errors.As(ask.Err, &held):
		out.Owner, out.Most = transport.PeerOwner{ID: held.Holder, Generation: held.Generation}, held.Most
	case out.Code == transport.PeerFailed && !ask.Unknown:
		out.Text = askError(to, command, err).Error() // it arrives as it is
	}
	return out
}

// ownToPeer is ToPeer for what a behavior returned.
func ownToPeer(err error) *transport.PeerError {
	out := &transport.PeerError{Code: transport.PeerFailed, Text: err.Error()}
	var ask *AskError
	out.Unknown = errors.As(err, &ask) && ask.Unknown
	switch c, marked := classify(err); {
	case c == rejected:
		out.Code, out.Text, out.Unknown = transport.PeerRejected, reasonOf(err), false
	case c == poison:
		out.Code = transport.PeerPoison
	case marked:
		out.Code = transport.PeerRetry
	case Retryable(err):
		out.Code = transport.PeerAgain
	}
	return out
}

// peerCode is that of an error of the runtime's, of a kind that is known. It is no reason to ask another node that a behavior sent a command to nobody.
func peerCode(err error) transport.PeerCode {
	var held *HeldError
	is := func(all ...error) bool {
		for _, one := range all {
			if errors.Is(err, one) {
				return true
			}
		}
		return false
	}
	switch {
	case errors.As(err, &held):
		return transport.PeerNotOwner
	case is(ErrStopping, errHandedOver): // before what ended with it
		return transport.PeerStopping
	case is(ErrMailboxFull):
		return transport.PeerMailboxFull
	case is(ErrUnknownCommand):
		return transport.PeerUnknownCommand
	case is(ErrAskCycle):
		return transport.PeerCycle
	case is(ErrUnavailable), Retryable(err):
		return transport.PeerUnavailable
	case is(context.DeadlineExceeded, context.Canceled):
		return transport.PeerEnded
	}
	return transport.PeerFailed
}

// fromPeer gives the error of an ask of another node as the one who asked gets it: as if the entity lived here. command is what was asked. An error that is
// no [*transport.PeerError] leaves open what was done.
func fromPeer(to Ref, command any, err error) error {
	var e *transport.PeerError
	if !errors.As(err, &e) {
		return askError(to, command, &AskError{Err: err, Unknown: true})
	}
	left := &RemoteError{Code: e.Code, Text: e.Text, Err: e.Err}
	if err != error(e) { // whoever carried it has more to say
		left.Text = err.Error()
	}
	var out error = left
	switch e.Code {
	case transport.PeerRejected:
		return &RejectError{Reason: e.Text}
	case transport.PeerFailed, transport.PeerAgain, transport.PeerPoison, transport.PeerRetry:
		if e.Unknown {
			out = askError(to, command, &AskError{Err: out, Unknown: true})
		}
		switch e.Code {
		case transport.PeerPoison:
			out = Poison(out)
		case transport.PeerRetry:
			out = Retry(out)
		}
		return out
	case transport.PeerNotOwner:
		out = &HeldError{Unit: to.unit(), Most: e.Most, Holder: e.Owner.ID, Generation: e.Owner.Generation}
		if left.Text != e.Text {
			out = fmt.Errorf("%w: %s", out, left.Text)
		}
	}
	return askError(to, command, &AskError{Err: out, Unknown: e.Unknown})
}
