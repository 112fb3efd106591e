package actors

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/transport"
)

var (
	peerRef  = Ref{Kind: "account", ID: "a"}
	sentinel = []error{
		ErrRejected, ErrPoison, ErrMailboxFull, ErrStopping, ErrUnavailable, ErrUnknownEntity, ErrUnknownCommand, ErrAskCycle, context.DeadlineExceeded, context.Canceled,
	}
)

// said is what can be told by an error.
func said(err error) string {
	var all []string
	for _, one := range sentinel {
		if errors.Is(err, one) {
			all = append(all, one.Error())
		}
	}
	if Retryable(err) {
		all = append(all, "retryable")
	}
	var ask *AskError
	if errors.As(err, &ask) && ask.Unknown {
		all = append(all, "unknown")
	}
	if c, marked := classify(err); marked {
		all = append(all, fmt.Sprint("class ", c))
	}
	return strings.Join(all, "; ")
}

// A local error that goes to another node says there what it says here.
func TestAnErrorSaysTheSameOnTheOtherSide(t *testing.T) {
	t.Parallel()
	fresh := func(err error) error { return &AskError{Err: err} }
	unknown := func(err error) error { return &AskError{Err: err, Unknown: true} }
	nested := func(err error, unknown bool) error {
		return fmt.Errorf("ask another: %w", &AskError{To: Ref{Kind: "other", ID: "b"}, Command: "*X", Err: err, Unknown: unknown})
	}
	held := &HeldError{Unit: peerRef.unit(), Most: time.Second, Holder: "node", Generation: 7}
	for name, c := range map[string]struct {
		err  error
		code transport.PeerCode
	}{
		"rejected":             {Reject("no more than %d", 5), transport.PeerRejected},
		"rejected, wrapped":    {fmt.Errorf("it says: %w", Reject("no")), transport.PeerRejected},
		"poison":               {Poison(errors.New("broken")), transport.PeerPoison},
		"retry":                {Retry(errors.New("busy")), transport.PeerRetry},
		"rejected, retry":      {Retry(errors.New("for now")), transport.PeerRetry},
		"own":                  {errors.New("oops"), transport.PeerFailed},
		"own, of another":      {nested(errors.New("oops"), false), transport.PeerFailed},
		"own, may be done":     {nested(errors.New("oops"), true), transport.PeerFailed},
		"own, lost, may be":    {Poison(nested(errors.New("oops"), true)), transport.PeerPoison},
		"own, retry, may be":   {Retry(nested(errors.New("oops"), true)), transport.PeerRetry},
		"mailbox":              {fresh(ErrMailboxFull), transport.PeerMailboxFull},
		"stopping":             {fresh(ErrStopping), transport.PeerStopping},
		"stopped in behavior":  {unknown(ErrStopping), transport.PeerStopping},
		"unavailable":          {fresh(ErrUnavailable), transport.PeerUnavailable},
		"lease lost":           {fresh(errors.Join(ErrUnavailable, ErrLeaseLost)), transport.PeerUnavailable},
		"lease lost, may be":   {unknown(errors.Join(ErrUnavailable, ErrLeaseLost)), transport.PeerUnavailable},
		"held":                 {fresh(held), transport.PeerNotOwner},
		"command":              {fresh(fmt.Errorf("%w: none", ErrUnknownCommand)), transport.PeerUnknownCommand},
		"cycle":                {fresh(ErrAskCycle), transport.PeerCycle},
		"time":                 {fresh(context.DeadlineExceeded), transport.PeerEnded},
		"time, begun":          {unknown(context.DeadlineExceeded), transport.PeerEnded},
		"panic":                {fresh(&PanicError{Value: "oops"}), transport.PeerFailed},
		"behavior's time":      {fresh(ErrTimeout), transport.PeerFailed},
		"commit not known":     {unknown(eventstore.ErrUnknownCommit), transport.PeerFailed},
		"another command's id": {fresh(ErrCommandReused), transport.PeerFailed},
	} {
		local := askError(peerRef, &struct{}{}, c.err)
		want := said(local)
		out := toPeer(peerRef, &struct{}{}, freshly(c.err))
		if out.Code != c.code {
			t.Errorf("%s goes as %q, want %q", name, out.Code, c.code)
		}
		got := fromPeer(peerRef, &struct{}{}, out)
		if said(got) != want {
			t.Errorf("%s: here it is %q, there %q", name, want, said(got))
		}
		if c.code != transport.PeerNotOwner && !strings.Contains(strings.ReplaceAll(got.Error(), "\n", " "), strings.ReplaceAll(textOf(c.err), "\n", " ")) {
			t.Errorf("%s: %q is no more than %q", name, textOf(c.err), got)
		}
	}
}

// freshly undoes what askError did to the one it was given.
func freshly(err error) error {
	if e, ok := err.(*AskError); ok {
		return &AskError{Err: e.Err, Unknown: e.Unknown}
	}
	return err
}

func textOf(err error) string {
	var ask *AskError
	switch {
	case errors.Is(err, ErrRejected):
		return reasonOf(err)
	case errors.As(err, &ask):
		return ask.Err.Error()
	}
	return err.Error()
}

// What an own error says of other entities is not said of the one that was asked; that it passes, it keeps.
func TestOfABehaviorsOwnErrorItsKindIsNotKept(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]error{
		"mailbox":     &AskError{To: Ref{Kind: "other", ID: "b"}, Err: ErrMailboxFull},
		"held":        &AskError{To: Ref{Kind: "other", ID: "b"}, Err: &HeldError{Holder: "node", Generation: 7}},
		"stopping":    &AskError{To: Ref{Kind: "other", ID: "b"}, Err: ErrStopping},
		"unavailable": fmt.Errorf("ask: %w", ErrUnavailable),
		"a store":     eventstore.ErrTrouble,
	} {
		out := toPeer(peerRef, nil, own)
		if out.Code != transport.PeerAgain || out.Owner != (transport.PeerOwner{}) || out.Unknown {
			t.Errorf("%s: %+v", name, out)
		}
		if got := said(fromPeer(peerRef, nil, out)); got != "retryable" {
			t.Errorf("%s: arrives as %q", name, got)
		}
	}
	for name, own := range map[string]error{
		"no such kind": &AskError{To: Ref{Kind: "other", ID: "b"}, Err: ErrUnknownEntity},
		"cycle":        &AskError{To: Ref{Kind: "other", ID: "b"}, Err: ErrAskCycle},
		"time":         context.DeadlineExceeded,
	} {
		if out := toPeer(peerRef, nil, own); out.Code != transport.PeerFailed {
			t.Errorf("%s: %+v", name, out)
		}
	}
	sent := &AskError{Err: fmt.Errorf("send X to nobody/1: %w", ErrUnknownEntity)} // a fault of the behavior's, and no reason to ask another node
	if out := toPeer(peerRef, nil, sent); out.Code != transport.PeerFailed {
		t.Errorf("sent to nobody: %+v", out)
	}
	stored := &AskError{Err: eventstore.ErrVersionConflict}
	if out := toPeer(peerRef, nil, stored); out.Code != transport.PeerUnavailable || !Retryable(fromPeer(peerRef, nil, out)) {
		t.Errorf("a conflict: %+v", out)
	}
	over := &AskError{Err: errors.Join(ErrUnavailable, errHandedOver)}
	if out := toPeer(peerRef, nil, over); out.Code != transport.PeerStopping {
		t.Errorf("handed over: %+v", out)
	}
}

// Every code arrives as something, with nothing done unless that is said.
func TestEveryCodeArrives(t *testing.T) {
	t.Parallel()
	for code, want := range map[transport.PeerCode]string{
		transport.PeerRejected:       "rejected; class 1",
		transport.PeerFailed:         "",
		transport.PeerPoison:         "poison; class 2",
		transport.PeerRetry:          "class 0",
		transport.PeerAgain:          "retryable",
		transport.PeerNotOwner:       "entity is unavailable; retryable",
		transport.PeerUnavailable:    "entity is unavailable; retryable",
		transport.PeerBusy:           "entity is unavailable; retryable",
		transport.PeerMailboxFull:    "mailbox is full; retryable",
		transport.PeerStopping:       "not running, or stopping; retryable",
		transport.PeerUnknownKind:    "no such kind of entity",
		transport.PeerUnknownType:    "entity is unavailable; retryable",
		transport.PeerUnknownCommand: "no case for this type",
		transport.PeerTooLarge:       "",
		transport.PeerBad:            "",
		transport.PeerCycle:          ErrAskCycle.Error(),
		transport.PeerEnded:          "context deadline exceeded",
		transport.PeerDenied:         "",
		"of a newer release":         "",
	} {
		e := &transport.PeerError{Code: code, Text: "why", Owner: transport.PeerOwner{ID: "node", Generation: 7}, Most: time.Second}
		got := fromPeer(peerRef, &struct{}{}, e)
		if said(got) != want {
			t.Errorf("%s arrives as %q, want %q", code, said(got), want)
		}
		var held *HeldError
		if code == transport.PeerNotOwner {
			if !errors.As(got, &held) || *held != (HeldError{Unit: event.Unit{Name: "account", Key: "a"}, Most: time.Second, Holder: "node", Generation: 7}) {
				t.Errorf("held: %+v", held)
			}
		} else if !strings.Contains(got.Error(), "why") {
			t.Errorf("%s: %v", code, got)
		}
		if code == transport.PeerRejected {
			var reject *RejectError
			if !errors.As(got, &reject) || reject.Reason != "why" {
				t.Errorf("rejected: %v", got)
			}
			continue // it rejected, whatever else is said
		}
		e.Unknown = true
		if got := fromPeer(peerRef, &struct{}{}, e); !strings.Contains(said(got), "unknown") || Retryable(got) {
			t.Errorf("%s, may have been done: %q", code, said(got))
		}
		carried := fromPeer(peerRef, &struct{}{}, fmt.Errorf("asked three nodes: %w", &transport.PeerError{Code: code, Text: "why"}))
		if !strings.Contains(carried.Error(), "asked three nodes") {
			t.Errorf("%s: %v", code, carried)
		}
	}
	ended := fromPeer(peerRef, nil, &transport.PeerError{Code: transport.PeerEnded, Text: "x", Err: context.Canceled})
	if !errors.Is(ended, context.Canceled) || errors.Is(ended, context.DeadlineExceeded) {
		t.Errorf("ended here: %v", ended)
	}
	other := fromPeer(peerRef, nil, errors.New("oops"))
	if said(other) != "unknown" {
		t.Errorf("an error of nobody's: %q", said(other))
	}
}
