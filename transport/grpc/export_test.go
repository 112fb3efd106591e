package grpc

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"google.golang.org/protobuf/proto"

	nodev1 "github.com/keyhold/keyhold/proto/keyhold/node/v1"
	"github.com/keyhold/keyhold/transport"
)

const Silence = silence

// At gives files whose own certificate is looked at as at this time.
func At(files *TLS, now time.Time) *TLS {
	files.now = func() time.Time { return now }
	return files
}

// Refusals tells of links that did not come about as a node does that has none and closes unused ones after an hour, until ctx ends.
func Refusals(ctx context.Context, logger *slog.Logger) (refused, bare func(from string), went func(to string)) {
	r := &run{config: Config{IdleAfter: time.Hour}}
	r.refusals.logger = logger
	go r.sweep(ctx)
	from := func(of refusalKind) func(string) {
		return func(address string) {
			r.refusals.from(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address)), of, errors.New("is not trusted"))
		}
	}
	return from(came), from(cameBare), func(to string) { r.refusals.to(to, errors.New("does not trust")) }
}

// Links says how many this node has to others, and how many others have to it.
func (p *Peers) Links() (out, in int) {
	r := p.running()
	r.links.Lock()
	out = len(r.links.by)
	r.links.Unlock()
	if r.listener != nil {
		r.listener.mu.Lock()
		in = len(r.listener.mu.open)
		r.listener.mu.Unlock()
	}
	return out, in
}

func Admits(most, inside, own int) bool { return admits(most, inside, own) }

// Encode and Decode are what is done to a question for the wire.
func Encode(q transport.PeerAsk) ([]byte, error) { return proto.Marshal(toQuestion(&q)) }

func Decode(data []byte) (transport.PeerAsk, error) {
	var q nodev1.Question
	if err := proto.Unmarshal(data, &q); err != nil {
		return transport.PeerAsk{}, err
	}
	return fromQuestion(&q)
}

// DecodeAnswer gives what is made of the bytes of an answer.
func DecodeAnswer(data []byte) (transport.PeerReply, error) {
	var a nodev1.AskResponse
	if err := proto.Unmarshal(data, &a); err != nil {
		return transport.PeerReply{}, err
	}
	return fromAnswer(&a)
}

// Held says how many bytes this node holds of others' links: of questions on their way in, and of questions inside and answers that are not taken.
func (p *Peers) Held() (coming, held int) {
	s := p.running().listener.stock
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.coming, s.mu.held
}

// Waits sets how long a question waits for those before it.
func (p *Peers) Waits(d time.Duration) {
	s := p.running().listener.stock
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wait = d
}

// Stock counts bytes; its links are numbers.
type Stock struct {
	stock
	links [40]accepted
}

func NewStock(most, message int, wait time.Duration) *Stock {
	return &Stock{stock: stock{most: most, message: message, wait: wait}}
}

func (s *Stock) Comes(ctx context.Context, link int) bool { return s.comes(ctx, &s.links[link]) }
func (s *Stock) Came(link, size int) bool                 { return s.came(&s.links[link], size) }
func (s *Stock) Done(link, size int)                      { s.done(&s.links[link], size) }

// Answer counts an answer of so many bytes that is not taken.
func (s *Stock) Answer(link, size int) bool {
	_, kept := s.answer(&s.links[link], nil, size)
	return kept
}

// Counted says what is counted in all, and of the links by themselves.
func (s *Stock) Counted() (coming, held, queued int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.links {
		h := &s.links[i].holding
		coming, held, queued = coming+h.coming, held+h.held, queued+h.queued
	}
	if coming != s.mu.coming || held != s.mu.held || queued != len(s.mu.queue) {
		panic("the sum is not that of the links")
	}
	return coming, held, queued
}
