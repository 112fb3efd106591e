package grpc

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/keyhold/keyhold/transport"
)

// ended is what is known of a call that has no answer.
type ended struct {
	address  string
	sent     bool  // something of it may have left
	answered bool  // the other side had begun to answer
	ctx      error // why its context ended, if it did
	refused  error // why the link is refused, if it is
	closed   bool  // by this side
	err      error // as gRPC has it
}

// outcome says what became of it. Unknown unless it is certain that the service has not seen it.
func (e *ended) outcome() *transport.PeerError {
	out := func(code transport.PeerCode, unknown bool, format string, args ...any) *transport.PeerError {
		return &transport.PeerError{Code: code, Unknown: unknown, Text: "node " + e.address + ": " + fmt.Sprintf(format, args...), Err: e.err}
	}
	s, _ := status.FromError(e.err)
	switch {
	case e.ctx != nil:
		e.err = e.ctx
		return out(transport.PeerEnded, e.sent, "there is no answer in the time of the call: %v", e.ctx)
	case e.closed:
		return out(transport.PeerStopping, e.sent, "this side stops")
	case e.refused != nil && !e.answered:
		return out(transport.PeerDenied, e.sent, "%v", e.refused)
	}
	switch s.Code() {
	case codes.DeadlineExceeded: // the other clock was a little faster
		e.err = context.DeadlineExceeded
		return out(transport.PeerEnded, e.sent, "the time of the call is over there")
	case codes.ResourceExhausted:
		// gRPC looks at a length before it reads a message, and the service is not called for one that is too long. The same code stands for other things too.
		if !e.answered && strings.Contains(s.Message(), "larger than max") {
			return out(transport.PeerTooLarge, false, "the question is larger than it takes: %s", s.Message())
		}
		if e.answered {
			return out(transport.PeerTooLarge, true, "the answer is larger than MaxMessage here: %s", s.Message())
		}
	case codes.Unimplemented:
		if !e.answered {
			return out(transport.PeerUnknownType, false, "it does not know the call: another release, or no node: %s", s.Message())
		}
	case codes.Internal:
		if !e.sent {
			return out(transport.PeerBad, false, "the question cannot be written: %s", s.Message())
		}
		if e.answered {
			return out(transport.PeerBad, true, "the answer cannot be read: %s", s.Message())
		}
	}
	if !e.sent && strings.Contains(s.Message(), "reading server preface") {
		return out(transport.PeerUnavailable, false, "it ends the link at once: is it a node service, and has this side the TLS settings that it asks for? %s", s.Message())
	}
	if !e.sent {
		return out(transport.PeerUnavailable, false, "it cannot be reached: %s", s.Message())
	}
	return out(transport.PeerUnavailable, true, "the link broke: %s", s.Message())
}

// progress is how far a call came. gRPC tells of it in the goroutine that reads the link, too.
type progress struct{ sent, answered atomic.Bool }

type progressKey struct{}

// sends listens to gRPC. The first of a call that goes out are its headers; gRPC begins anew only where the other side has said that it did nothing.
type sends struct{}

func (sends) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (sends) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (sends) HandleConn(context.Context, stats.ConnStats)                       {}

func (sends) HandleRPC(ctx context.Context, s stats.RPCStats) {
	p, ok := ctx.Value(progressKey{}).(*progress)
	if !ok {
		return
	}
	switch s := s.(type) {
	case *stats.Begin:
		if s.IsTransparentRetryAttempt {
			p.sent.Store(false)
		}
	case *stats.OutHeader:
		p.sent.Store(true)
	case *stats.InHeader:
		p.answered.Store(true)
	}
}
