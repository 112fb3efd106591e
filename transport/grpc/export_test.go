package grpc

import (
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

func Admits(most, inside, own, callers int) bool { return admits(most, inside, own, callers) }

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
