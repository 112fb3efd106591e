package grpc_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/grpc"
)

// probed says how many probes came.
type probed struct {
	echo
	came chan int
}

func (p probed) Probe(some []transport.PeerProbe) { p.came <- len(some) }

// A probe that went too long a way for the messages of this node keeps no other one back.
func TestAProbeThatIsTooLongIsLeftOut(t *testing.T) {
	t.Parallel()
	b, a := probed{came: make(chan int, 1)}, start(t, grpc.Config{MaxMessage: 1024}, nil)
	step := transport.PeerStep{Ask: transport.PeerAskID{Node: 1 << 63, Number: 1 << 63}, Made: 1 << 63}
	long := transport.PeerProbe{Way: slices.Repeat([]transport.PeerStep{step}, 64)}
	err := a.Probe(limit(t), start(t, grpc.Config{}, b).Address(), []transport.PeerProbe{{}, long, {At: 1}, long})
	if e := fails(t, err, transport.PeerTooLarge, false); e.Text != "2 of 4 probes are longer than MaxMessage allows (1024), and are left out" {
		t.Errorf("it says %q", e.Text)
	}
	if n := <-b.came; n != 2 {
		t.Errorf("%d came", n)
	}
}

// Bytes from anybody: a question that is taken says the same when it goes on to another node.
func FuzzQuestion(f *testing.F) {
	for _, q := range []transport.PeerAsk{question(), {To: event.Unit{Name: "a", Key: "b"}, Type: "t", Waiting: []event.Unit{{}}, Decide: true, Trace: event.Trace{Parent: "p", State: "s"}}, {}} {
		data, err := grpc.Encode(q)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		q, err := grpc.Decode(data)
		if err != nil {
			return
		}
		if q.To.Name == "" || q.To.Key == "" || q.Type == "" || q.Version < 0 {
			t.Errorf("taken: %+v", q)
		}
		again, err := grpc.Encode(q)
		if err != nil {
			t.Fatal(err)
		}
		got, err := grpc.Decode(again)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(q, got, cmpopts.EquateEmpty()); d != "" {
			t.Error(d)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte("\x0a\x02\x18\x63"))
	f.Add([]byte("\x12\x0a\x08\x05\x22\x02\x0a\x00\x2a\x02\x08\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, err := grpc.DecodeAnswer(data)
		var e *transport.PeerError
		if errors.As(err, &e) && (e.Code == "" || e.Most < 0) {
			t.Errorf("%+v", e)
		}
	})
}
