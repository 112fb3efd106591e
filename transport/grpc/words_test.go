package grpc_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/grpc"
)

// refusing answers every ask with its error.
type refusing struct {
	echo
	err error
}

func (r refusing) Ask(context.Context, transport.PeerAsk) (transport.PeerReply, error) {
	return transport.PeerReply{}, r.err
}
func (r refusing) Status(context.Context) (transport.PeerStatus, error) {
	return transport.PeerStatus{Ready: r.err.Error()}, nil
}
func (r refusing) Tell(context.Context, transport.PeerAsk) error { return r.err }

// Whatever an error says, it arrives: a text that the wire does not carry must not make of a no that nobody knows what was done.
func TestAnErrorOfAnyTextArrives(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"not UTF-8":                       "no such file: \xff\xfe",
		"more than a message":             strings.Repeat("long ", 1000),
		"more than a message, not UTF-8":  strings.Repeat("\xff", 5000),
		"more than a message, wide runes": strings.Repeat("€", 2000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, grpc.Config{MaxMessage: 2048}, refusing{err: &transport.PeerError{Code: transport.PeerRejected, Text: text}})
			a := start(t, grpc.Config{MaxMessage: 2048}, nil)
			_, err := a.Ask(limit(t), b.Address(), question())
			e := fails(t, err, transport.PeerRejected, false)
			if !utf8.ValidString(e.Text) || len(e.Text) > 1024 || len(text) > 2048 && len(e.Text) < 3 {
				t.Errorf("its text is %q", e.Text)
			}
			fails(t, a.Tell(limit(t), b.Address(), question()), transport.PeerRejected, false)
		})
	}
}

// A node says why it is not ready in the words of whoever does not answer it.
func TestAStatusOfAnyTextArrives(t *testing.T) {
	t.Parallel()
	b, a := start(t, grpc.Config{}, refusing{err: errors.New("the store says \xff")}), start(t, grpc.Config{}, nil)
	if s, err := a.Status(limit(t), b.Address()); err != nil || s.Ready != "the store says \uFFFD" {
		t.Errorf("got %q, %v", s.Ready, err)
	}
}

// What cannot be written was not sent.
func TestAQuestionThatIsNotUTF8IsNotSent(t *testing.T) {
	t.Parallel()
	b, a := start(t, grpc.Config{}, echo{}), start(t, grpc.Config{}, nil)
	for _, spoil := range []func(q *transport.PeerAsk){
		func(q *transport.PeerAsk) { q.To.Key = "\xff" },
		func(q *transport.PeerAsk) { q.CommandID = "\xff" },
		func(q *transport.PeerAsk) { q.Tenant = "\xff" },
	} {
		q := question()
		spoil(&q)
		_, err := a.Ask(limit(t), b.Address(), q)
		fails(t, err, transport.PeerBad, false)
		fails(t, a.Tell(limit(t), b.Address(), q), transport.PeerBad, false)
	}
	q := question()
	q.Waiting = []event.Unit{{Name: "order", Key: "\xff"}}
	_, err := a.Ask(limit(t), b.Address(), q)
	fails(t, err, transport.PeerBad, false)
	fails(t, a.Wake(limit(t), b.Address(), q.Waiting), transport.PeerBad, false)
}
