package grpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	rpc "google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/grpc"
)

const largest = 256 << 10 // of a question: larger ones cost the race detector seconds, in which a busy machine sends no pings

// large is a question of nearly that.
func large() transport.PeerAsk {
	q := question()
	q.Data = make([]byte, largest-1024)
	return q
}

// bounded takes messages of that, and four of them of a link.
var bounded = grpc.Config{MaxMessage: largest, MaxBytes: 16 * largest}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// One link sends as many of the largest questions as it may have calls: it has its share of the bytes, the rest is refused as something to ask again, and others find room.
func TestALinkHasItsShareOfTheBytes(t *testing.T) {
	t.Parallel()
	h := newHolding()
	b, hostile := start(t, bounded, h), start(t, grpc.Config{MaxMessage: largest}, nil)
	const asks = 200
	out := make(chan error, asks)
	ctx, cancel := context.WithCancel(limit(t))
	before := heap()
	for range asks {
		go func() {
			_, err := hostile.Ask(ctx, b.Address(), large())
			out <- err
		}()
	}
	for range 4 {
		within(t, "a large question inside", h.inside)
	}
	for range asks - 4 {
		e := fails(t, within(t, "an answer", out), transport.PeerBusy, false)
		if !strings.Contains(e.Text, "MaxBytes 4194304") {
			t.Fatalf("it says %q", e.Text)
		}
	}
	if _, held := b.Held(); held > 4*largest {
		t.Errorf("%d bytes are held for one link", held)
	}
	t.Logf("%d of the largest asks: the heap of both sides has grown by %d KiB", asks, (heap()-before)>>10)

	other := start(t, grpc.Config{MaxMessage: largest}, nil)
	got := make(chan error, 1)
	go func() {
		_, err := other.Ask(limit(t), b.Address(), large())
		got <- err
	}()
	within(t, "another link's question inside", h.inside)
	close(h.let)
	if err := within(t, "the answer", got); err != nil {
		t.Errorf("another link: %v", err)
	}
	cancel()
	until(t, "nothing is held any more", func() bool { coming, held := b.Held(); return coming+held == 0 })
	if _, err := hostile.Ask(limit(t), b.Address(), large()); err != nil {
		t.Errorf("the same link, later: %v", err)
	}
}

// Several links that send what they can, and take no answers, leave room for others.
func TestGreedyLinksTogetherKeepNobodyOut(t *testing.T) {
	t.Parallel()
	const links, each = 3, 16 // four times as much as b takes: many more keep a busy machine from sending its pings
	h := newHolding()
	b := start(t, bounded, h)
	out := make(chan error, links*each)
	ctx, cancel := context.WithCancel(limit(t))
	for range links {
		greedy := start(t, grpc.Config{MaxMessage: largest}, nil)
		for range each {
			go func() {
				_, err := greedy.Ask(ctx, b.Address(), large())
				out <- err
			}()
		}
	}
	inside := 0
	for refused := 0; inside+refused < links*each; {
		select {
		case <-h.inside:
			inside++
		case err := <-out:
			refused++
			fails(t, err, transport.PeerBusy, false)
		case <-ctx.Done():
			t.Fatal("asks are neither inside nor refused")
		}
	}
	if inside < 4 || inside > 7 {
		t.Errorf("%d of the largest questions are inside", inside)
	}
	other := start(t, grpc.Config{MaxMessage: largest}, nil)
	got := make(chan error, 1)
	go func() {
		_, err := other.Ask(limit(t), b.Address(), large())
		got <- err
	}()
	within(t, "another link's question inside", h.inside)
	close(h.let)
	if err := within(t, "the answer", got); err != nil {
		t.Errorf("another link: %v", err)
	}
	cancel()
	until(t, "nothing is held any more", func() bool { coming, held := b.Held(); return coming+held == 0 })
}

// silent opens a call of a link and asks, and never reads what is answered.
func silent(t *testing.T, conn *rpc.ClientConn, in []byte) {
	t.Helper()
	s, err := conn.NewStream(limit(t), &rpc.StreamDesc{ServerStreams: true}, "/keyhold.node.v1.NodeService/Ask", rpc.ForceCodec(raw{}))
	if err == nil {
		err = s.SendMsg(&in)
	}
	if err == nil {
		err = s.CloseSend()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// encoded is a question as it goes over the wire, in the field of a request.
func encoded(t *testing.T, q transport.PeerAsk) []byte {
	t.Helper()
	body, err := grpc.Encode(q)
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.AppendUvarint([]byte{1<<3 | 2}, uint64(len(body))), body...)
}

// bulky answers more than it is asked.
type bulky struct{ echo }

func (bulky) Ask(context.Context, transport.PeerAsk) (transport.PeerReply, error) {
	q := large()
	return transport.PeerReply{Type: q.Type, Encoding: q.Encoding, Data: q.Data}, nil
}

func TestAnswersThatNobodyTakesAreThrownAway(t *testing.T) {
	t.Parallel()
	b := start(t, bounded, bulky{})
	conn, err := rpc.NewClient(b.Address(), rpc.WithTransportCredentials(insecure.NewCredentials()), rpc.WithInitialWindowSize(64<<10), rpc.WithInitialConnWindowSize(64<<20))
	if err != nil {
		t.Fatal(err)
	}
	in, other := encoded(t, question()), start(t, grpc.Config{MaxMessage: largest}, nil)
	until(t, "an answer is thrown away", func() bool {
		silent(t, conn, in)
		var out []byte
		if err := conn.Invoke(limit(t), "/keyhold.node.v1.NodeService/Ask", &in, &out, rpc.ForceCodec(raw{})); err != nil {
			t.Fatal(err)
		}
		_, err := grpc.DecodeAnswer(out)
		var e *transport.PeerError
		if errors.As(err, &e) && e.Code == transport.PeerBusy {
			return false
		}
		if err == nil {
			return false
		}
		if e := fails(t, err, transport.PeerUnavailable, true); !strings.Contains(e.Text, "has thrown the answer away") {
			t.Fatalf("it says %q", e.Text)
		}
		return true
	})
	for range 5 {
		if _, err := other.Ask(limit(t), b.Address(), large()); err != nil {
			t.Errorf("another link: %v", err)
		}
		if _, held := b.Held(); held > 6*largest {
			t.Errorf("%d bytes are held", held)
		}
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	until(t, "nothing is held any more", func() bool { coming, held := b.Held(); return coming+held == 0 })
}

// A call that is cancelled while its answer is not taken frees what was held of it, while the link goes on.
func TestACancelledCallHoldsNothing(t *testing.T) {
	t.Parallel()
	b := start(t, bounded, echo{})
	conn, err := rpc.NewClient(b.Address(), rpc.WithTransportCredentials(insecure.NewCredentials()), rpc.WithInitialWindowSize(64<<10), rpc.WithInitialConnWindowSize(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(limit(t))
	s, err := conn.NewStream(ctx, &rpc.StreamDesc{ServerStreams: true}, "/keyhold.node.v1.NodeService/Ask", rpc.ForceCodec(raw{}))
	if err != nil {
		t.Fatal(err)
	}
	in := encoded(t, large())
	if err := s.SendMsg(&in); err != nil {
		t.Fatal(err)
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	until(t, "the answer is held", func() bool { _, held := b.Held(); return held > largest/2 && held < largest })
	cancel()
	until(t, "nothing is held any more", func() bool { coming, held := b.Held(); return coming+held == 0 })
}

// frame is one of HTTP/2.
func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	b := []byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// headers are those of an ask, each literally.
func headers() []byte {
	var b []byte
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/keyhold.node.v1.NodeService/Ask"}, {":authority", "a"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		b = append(b, 0, byte(len(h[0])))
		b = append(append(b, h[0]...), byte(len(h[1])))
		b = append(b, h[1]...)
	}
	return b
}

// Questions of which a part comes, and never the rest, keep others of their link out, and nobody else.
func TestQuestionsThatNeverCome(t *testing.T) {
	t.Parallel()
	b := start(t, bounded, echo{})
	b.Waits(50 * time.Millisecond)
	conn := dial(t, b.Address())
	all := bytes.NewBufferString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	all.Write(frame(4, 0, 0, nil))
	const asks = 500
	for i := range uint32(asks) {
		all.Write(frame(1, 4, 2*i+1, headers()))
		all.Write(frame(0, 0, 2*i+1, append([]byte{0, 0, 0x03, 0xff, 0xff}, "the beginning"...))) // of the largest
	}
	if _, err := conn.Write(all.Bytes()); err != nil {
		t.Fatal(err)
	}
	ended := make(chan int, 1)
	go func() { ended <- endedStreams(conn, asks-4) }()
	if n := within(t, "the calls that are too much are ended", ended); n != asks-4 {
		t.Errorf("%d calls are ended", n)
	}
	if coming, held := b.Held(); coming != 4*largest || held != 0 {
		t.Errorf("%d bytes are on their way and %d held", coming, held)
	}
	other := start(t, grpc.Config{MaxMessage: largest}, nil)
	for range 20 {
		if _, err := other.Ask(limit(t), b.Address(), large()); err != nil {
			t.Errorf("another link: %v", err)
		}
	}
	conn.Close()
	until(t, "nothing is on its way any more", func() bool { coming, held := b.Held(); return coming+held == 0 })
}

// endedStreams reads frames until so many streams are ended by the other side.
func endedStreams(conn io.Reader, most int) int {
	over := map[uint32]bool{}
	for len(over) < most {
		var head [9]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			break
		}
		if _, err := io.CopyN(io.Discard, conn, int64(head[0])<<16|int64(head[1])<<8|int64(head[2])); err != nil {
			break
		}
		if kind, flags := head[3], head[4]; kind == 1 && flags&1 != 0 {
			over[binary.BigEndian.Uint32(head[5:])] = true
		}
	}
	return len(over)
}

// Whatever order questions come in, what is counted is what there is, and no more than its bounds.
func TestTheSumOfBytesIsThatOfTheLinks(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	synctest.Test(t, func(t *testing.T) {
		s := grpc.NewStock(64, 2, time.Second)
		var over []chan struct{}
		var refused atomic.Int64
		for range 2000 {
			link, size, reads, stays, quits := random.IntN(3), random.IntN(3), random.IntN(300), random.IntN(500), random.IntN(20) == 0
			ctx, cancel := context.WithCancel(t.Context())
			if quits {
				ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
			}
			end := make(chan struct{})
			over = append(over, end)
			go func() {
				defer close(end)
				defer cancel()
				if !s.Comes(ctx, link) {
					refused.Add(1)
					return
				}
				<-time.After(time.Duration(reads) * time.Millisecond)
				if s.Came(link, size) {
					<-time.After(time.Duration(stays) * time.Millisecond)
					s.Done(link, size)
				}
			}()
			<-time.After(time.Millisecond)
			synctest.Wait()
			if coming, held, queued := s.Counted(); coming > 32 || held > 32 || queued > 3*128 {
				t.Fatalf("%d are coming, %d held, %d wait", coming, held, queued)
			}
		}
		for _, end := range over {
			<-end
		}
		if coming, held, queued := s.Counted(); coming+held+queued != 0 {
			t.Errorf("in the end %d are coming, %d held, %d wait", coming, held, queued)
		}
		if n := refused.Load(); n == 0 || n == 2000 {
			t.Errorf("%d are refused", n)
		}
	})
}
