package grpc

import (
	"context"
	"fmt"
	"runtime/debug"

	rpc "google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	nodev1 "github.com/keyhold/keyhold/proto/keyhold/node/v1"
	"github.com/keyhold/keyhold/transport"
)

const serviceName = "keyhold.node.v1.NodeService"

// incoming is a message that may turn out to be none. To gRPC that is an error of its own, of which a caller cannot know whether the service saw anything.
type incoming struct {
	message proto.Message
	size    int // bytes
	err     error
}

// lenient encodes and decodes for the server.
type lenient struct{ encoding.CodecV2 }

func (l lenient) Marshal(v any) (mem.BufferSlice, error) {
	if o, counted := v.(*outgoing); counted {
		return o.marshal()
	}
	return l.CodecV2.Marshal(v)
}

func (l lenient) Unmarshal(data mem.BufferSlice, v any) error {
	in := v.(*incoming)
	in.size = data.Len()
	in.err = l.CodecV2.Unmarshal(data, in.message)
	return nil
}

// In the metadata of each call.
const (
	applicationKey = "keyhold-application"
	storeKey       = "keyhold-store"
)

// host answers calls. It stands between gRPC and the service.
type host struct {
	run     *run
	service transport.PeerService
	room    room
	stock   stock
}

// describe is what a generator would write for the calls, but for what all have in common, see serve.
func describe() *rpc.ServiceDesc {
	handle := func(name string, call func(*host, context.Context, func(any) error) any) rpc.MethodDesc {
		return rpc.MethodDesc{MethodName: name, Handler: func(h any, ctx context.Context, decode func(any) error, _ rpc.UnaryServerInterceptor) (any, error) {
			return call(h.(*host), ctx, decode), nil
		}}
	}
	return &rpc.ServiceDesc{ServiceName: serviceName, HandlerType: (*any)(nil), Metadata: "keyhold/node/v1/node.proto",
		Methods: []rpc.MethodDesc{handle("Ask", (*host).ask), handle("Tell", (*host).tell), handle("Wake", (*host).wake), handle("Probe", (*host).probe), handle("Status", (*host).status)}}
}

func (h *host) ask(ctx context.Context, decode func(any) error) any {
	var in nodev1.AskRequest
	return h.serve(ctx, decode, &in, true, func() (proto.Message, error) {
		q, err := fromQuestion(in.GetQuestion())
		if err != nil {
			return nil, err
		}
		reply, err := h.service.Ask(ctx, q)
		return toReply(reply), err
	}, func(f *nodev1.Failure) proto.Message {
		return &nodev1.AskResponse{Outcome: &nodev1.AskResponse_Failure{Failure: f}}
	})
}

func (h *host) tell(ctx context.Context, decode func(any) error) any {
	var in nodev1.TellRequest
	return h.serve(ctx, decode, &in, true, func() (proto.Message, error) {
		q, err := fromQuestion(in.GetQuestion())
		if err != nil {
			return nil, err
		}
		return &nodev1.TellResponse{}, h.service.Tell(ctx, q)
	}, func(f *nodev1.Failure) proto.Message { return &nodev1.TellResponse{Failure: f} })
}

func (h *host) wake(ctx context.Context, decode func(any) error) any {
	var in nodev1.WakeRequest
	return h.serve(ctx, decode, &in, false, func() (proto.Message, error) {
		h.service.Wake(fromUnits(in.GetUnits()))
		return &nodev1.WakeResponse{}, nil
	}, func(f *nodev1.Failure) proto.Message { return &nodev1.WakeResponse{Failure: f} })
}

func (h *host) probe(ctx context.Context, decode func(any) error) any {
	var in nodev1.ProbeRequest
	return h.serve(ctx, decode, &in, false, func() (proto.Message, error) {
		h.service.Probe(fromProbes(in.GetProbes()))
		return &nodev1.ProbeResponse{}, nil
	}, func(f *nodev1.Failure) proto.Message { return &nodev1.ProbeResponse{Failure: f} })
}

func (h *host) status(ctx context.Context, decode func(any) error) any {
	var in nodev1.StatusRequest
	return h.serve(ctx, decode, &in, false, func() (proto.Message, error) {
		s, err := h.service.Status(ctx)
		return toStatus(s), err
	}, func(f *nodev1.Failure) proto.Message { return &nodev1.StatusResponse{Failure: f} })
}

// serve is what all calls have in common. counted: it takes a place in the room; wakes, probes and the status do not, so that a node that is full can still be looked at.
func (h *host) serve(ctx context.Context, decode func(any) error, in proto.Message, counted bool, do func() (proto.Message, error), failed func(*nodev1.Failure) proto.Message) (out any) {
	ended := func(err error) proto.Message { return failed(toFailure(err, h.run.config.MaxMessage/2)) }
	fail := func(code transport.PeerCode, unknown bool, format string, args ...any) proto.Message {
		return ended(&transport.PeerError{Code: code, Text: fmt.Sprintf(format, args...), Unknown: unknown})
	}
	called(ctx)
	if why := h.stranger(ctx); why != "" {
		return fail(transport.PeerDenied, false, "%s", why)
	}
	link := connectionOf(ctx)
	if !h.stock.comes(ctx, link) { // nothing of the question was waited for yet
		return fail(transport.PeerBusy, false, "node %s has as many questions on their way in as it takes, or as are this link's share (MaxBytes %d)", h.run.address, h.stock.most)
	}
	got := incoming{message: in}
	err := decode(&got)
	if !h.stock.came(link, got.size) {
		return fail(transport.PeerBusy, false, "node %s holds as many bytes as it takes, or as are this link's share (MaxBytes %d), and the question has %d", h.run.address, h.stock.most, got.size)
	}
	question := got.size
	done := func() {
		h.stock.done(link, question)
		question = 0
	}
	defer done()
	if err != nil {
		return ended(err) // too large, or the link broke: gRPC has told the caller already, and sends nothing of this
	}
	if got.err != nil {
		return fail(transport.PeerBad, false, "the message cannot be read: %v", got.err)
	}
	if !h.run.gate.enter() {
		return fail(transport.PeerStopping, false, "node %s stops", h.run.address)
	}
	defer h.run.gate.leave()
	if counted {
		if !h.room.enter(link) {
			return fail(transport.PeerBusy, false, "node %s has as many asks inside as it takes, or as are this caller's share (MaxInside %d)", h.run.address, h.room.most)
		}
		defer h.room.leave(link)
	}
	defer func() {
		if v := recover(); v != nil {
			h.run.config.Logger.Error("node service: a call panicked", "panic", v, "stack", string(debug.Stack()))
			out = fail(transport.PeerFailed, true, "it panicked on node %s: %v", h.run.address, v)
		}
	}()
	answer, err := do()
	if err != nil {
		answer = ended(err)
	}
	size := proto.Size(answer)
	if size > h.run.config.MaxMessage {
		return fail(transport.PeerTooLarge, true, "the answer has %d bytes, more than MaxMessage allows on node %s (%d)", size, h.run.address, h.run.config.MaxMessage)
	}
	done() // before its answer is counted, so that an ask with a short answer always has room for it
	out, kept := h.stock.answer(link, answer, size)
	if !kept && err != nil {
		return failed(toFailure(err, smallAnswer/4))
	}
	if !kept {
		return fail(transport.PeerUnavailable, true, "node %s has thrown the answer away: this link does not take its answers, and has its share of bytes (MaxBytes %d)", h.run.address, h.stock.most)
	}
	return out
}

// stranger says why a call is not for this node.
func (h *host) stranger(ctx context.Context) string {
	caller := transport.PeerIdentity{Application: first(ctx, applicationKey), StoreID: first(ctx, storeKey)}
	self := h.run.self
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	if !differ(caller.Application, self.Application) && !differ(caller.StoreID, self.StoreID) {
		return ""
	}
	return fmt.Sprintf("node %s belongs to application %q (store %s), and the call comes from application %q (store %s): they do not ask one another; is the address an old one, or that of another application?",
		h.run.address, self.Application, or(self.StoreID, "unknown"), caller.Application, or(caller.StoreID, "unknown"))
}

func first(ctx context.Context, key string) string {
	if v := metadata.ValueFromIncomingContext(ctx, key); len(v) > 0 {
		return v[0]
	}
	return ""
}

// connectionOf gives the connection that the listener has accepted: there is no other way in.
func connectionOf(ctx context.Context) *accepted {
	p, _ := peer.FromContext(ctx)
	return p.Addr.(from).conn
}

func called(ctx context.Context) {
	connectionOf(ctx).called.Store(true)
}
