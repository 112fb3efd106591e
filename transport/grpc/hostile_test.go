package grpc_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	rpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/grpc"
)

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(limit(t), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// closes waits until the other side has closed the connection.
func closes(t *testing.T, conn net.Conn) {
	t.Helper()
	_, err := io.Copy(io.Discard, conn)
	var slow net.Error
	if errors.As(err, &slow) && slow.Timeout() {
		t.Error("the connection stays open")
	}
}

// answers asks until it is answered: a node that gives little time for handshakes hangs up on who is slow on a busy machine.
func answers(t *testing.T, address string) {
	t.Helper()
	a := start(t, grpc.Config{}, nil)
	if err := word(limit(t), func(ctx context.Context) error { _, err := a.Ask(ctx, address, question()); return err }); err != nil {
		t.Errorf("the node does not answer any more: %v", err)
	}
}

func TestBytesThatAreNoCall(t *testing.T) {
	t.Parallel()
	b := start(t, grpc.Config{ConnectTimeout: 100 * time.Millisecond}, echo{})
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	settings := string([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0})
	for name, bytes := range map[string]string{
		"garbage":            strings.Repeat("\x00\xff garbage", 1000),
		"another protocol":   "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"TLS":                "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"a huge frame":       preface + settings + "\xff\xff\xff\x00\x00\x00\x00\x00\x01" + strings.Repeat("x", 1<<16),
		"data of no stream":  preface + settings + "\x00\x00\x04\x00\x00\x00\x00\x00\x07data",
		"headers of nothing": preface + settings + "\x00\x00\x04\x01\x05\x00\x00\x00\x01\xff\xff\xff\xff",
		"half a preface":     preface[:10],
		"nothing":            "",
	} {
		conn := dial(t, b.Address())
		if _, err := io.WriteString(conn, bytes); err != nil {
			t.Logf("%s: %v", name, err) // closed before all was written
		}
		if name == "data of no stream" { // which HTTP/2 lets pass
			continue
		}
		closes(t, conn)
	}
	answers(t, b.Address())
}

func TestWhoNeverFinishesAHandshakeIsHungUpOn(t *testing.T) {
	t.Parallel()
	for _, files := range []*grpc.TLS{nil, newAuthority(t).issue(t, certificate{})} {
		b := start(t, grpc.Config{TLS: files, ConnectTimeout: 50 * time.Millisecond}, echo{})
		closes(t, dial(t, b.Address()))
	}
}

func TestAFloodOfConnectionsIsBounded(t *testing.T) {
	t.Parallel()
	b := start(t, grpc.Config{MaxLinks: 3, ConnectTimeout: time.Hour}, echo{})
	var open []net.Conn
	for range 3 {
		open = append(open, dial(t, b.Address()))
	}
	until(t, "three are taken", func() bool { _, in := b.Links(); return in == 3 })
	for range 20 {
		closes(t, dial(t, b.Address()))
		if _, in := b.Links(); in != 3 {
			t.Fatalf("%d are open", in)
		}
	}
	open[0].Close()
	until(t, "one has gone", func() bool { _, in := b.Links(); return in == 2 })
	answers(t, b.Address())
}

func TestStopDoesNotWaitForHandshakes(t *testing.T) {
	t.Parallel()
	b := start(t, grpc.Config{ConnectTimeout: time.Hour}, echo{})
	dial(t, b.Address())
	until(t, "it is taken", func() bool { _, in := b.Links(); return in == 1 })
	stop(t, b)
}

// raw sends bytes as they are.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error { *v.(*[]byte) = slices.Clone(data); return nil }
func (raw) Name() string                       { return "proto" }

func TestMessagesThatDoNotDecode(t *testing.T) {
	t.Parallel()
	b := start(t, grpc.Config{}, echo{})
	conn, err := rpc.NewClient(b.Address(), rpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, name := range []string{"Ask", "Tell", "Wake", "Probe", "Status"} {
		in, out := []byte("\xff\xff\xff"), []byte(nil)
		if err := conn.Invoke(limit(t), "/keyhold.node.v1.NodeService/"+name, &in, &out, rpc.ForceCodec(raw{})); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(string(out), "cannot be read") {
			t.Errorf("%s: it answers %q", name, out)
		}
	}
	_, err = grpc.DecodeAnswer(nil)
	fails(t, err, transport.PeerBad, true)
	in, out := []byte{}, []byte{}
	if err := conn.Invoke(limit(t), "/keyhold.node.v1.NodeService/Conquer", &in, &out, rpc.ForceCodec(raw{})); status.Code(err) != codes.Unimplemented {
		t.Errorf("an unknown call: %v", err)
	}
	answers(t, b.Address())
}

// peer speaks HTTP/2 and answers as a test says.
func peer(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(limit(t), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Protocols: protocols, ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Log(err)
		}
		w.Header().Set("Content-Type", "application/grpc")
		answer(w, r)
	})}
	served := make(chan struct{})
	go func() {
		defer close(served)
		server.Serve(l)
	}()
	t.Cleanup(func() { server.Close(); <-served })
	return l.Addr().String()
}

func message(body string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
}

func TestAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	say := func(h http.Header, status int) { h.Set(http.TrailerPrefix+"Grpc-Status", strconv.Itoa(status)) }
	for name, c := range map[string]struct {
		answer  func(w http.ResponseWriter)
		code    transport.PeerCode
		unknown bool
	}{
		"garbage":                {func(w http.ResponseWriter) { w.Write(message("\xff\xff\xff")); say(w.Header(), 0) }, transport.PeerBad, true},
		"no outcome":             {func(w http.ResponseWriter) { w.Write(message("")); say(w.Header(), 0) }, transport.PeerBad, true},
		"a newer encoding":       {func(w http.ResponseWriter) { w.Write(message("\x0a\x02\x18\x63")); say(w.Header(), 0) }, transport.PeerBad, true},
		"a newer error":          {func(w http.ResponseWriter) { w.Write(message("\x12\x02\x08\x63")); say(w.Header(), 0) }, transport.PeerFailed, false},
		"a huge length":          {func(w http.ResponseWriter) { w.Write([]byte{0, 0xff, 0xff, 0xff, 0xff}); say(w.Header(), 0) }, transport.PeerTooLarge, true},
		"half a message":         {func(w http.ResponseWriter) { w.Write(message("abc")[:6]); say(w.Header(), 0) }, transport.PeerBad, true},
		"it ends without status": {func(w http.ResponseWriter) { w.Write(message("")) }, transport.PeerBad, true},
		"busy":                   {func(w http.ResponseWriter) { w.Header().Set("Grpc-Status", "8") }, transport.PeerUnavailable, true},
		"no such call":           {func(w http.ResponseWriter) { w.Header().Set("Grpc-Status", "12") }, transport.PeerUnknownType, false},
		"a page":                 {func(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/html"); w.Write([]byte("hello")) }, transport.PeerUnavailable, true},
		"it hangs up":            {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, transport.PeerUnavailable, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := peer(t, func(w http.ResponseWriter, _ *http.Request) { c.answer(w) })
			_, err := start(t, grpc.Config{}, nil).Ask(limit(t), address, question())
			fails(t, err, c.code, c.unknown)
		})
	}
}

// A node of a release before knows no probes. That says so, and the link goes on.
func TestProbesForANodeThatKnowsNone(t *testing.T) {
	t.Parallel()
	b := start(t, grpc.Config{}, echo{})
	address := peer(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/Probe") {
			w.Header().Set("Grpc-Status", "12")
			return
		}
		w.Write(message(""))
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	})
	for range 3 {
		fails(t, b.Probe(limit(t), address, []transport.PeerProbe{{}}), transport.PeerUnknownType, false)
		if err := b.Tell(limit(t), address, question()); err != nil {
			t.Errorf("the same link: %v", err)
		}
	}
}

// Clocks of machines differ: a time of day that goes over the wire would end a call early, or never.
func TestOnlyTheTimeThatIsLeftGoesOverTheWire(t *testing.T) {
	t.Parallel()
	headers := make(chan http.Header, 1)
	address := peer(t, func(w http.ResponseWriter, r *http.Request) {
		headers <- r.Header.Clone()
		w.Header().Set("Grpc-Status", "12")
	})
	_, err := start(t, grpc.Config{}, nil).Ask(limit(t), address, question())
	fails(t, err, transport.PeerUnknownType, false)
	h := within(t, "the call", headers)
	value := h.Get("Grpc-Timeout")
	unit := map[string]time.Duration{"n": 1, "u": time.Microsecond, "m": time.Millisecond, "S": time.Second, "M": time.Minute, "H": time.Hour}[value[len(value)-1:]]
	number, err := strconv.Atoi(value[:len(value)-1])
	if left := time.Duration(number) * unit; err != nil || left <= 0 || left > patience {
		t.Errorf("the header says %q", value)
	}
	var names []string
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	if got, want := strings.Join(names, " "), "Content-Type Grpc-Accept-Encoding Grpc-Timeout Keyhold-Application Keyhold-Store Te User-Agent"; got != want && got != strings.Replace(want, "Grpc-Accept-Encoding ", "", 1) {
		t.Errorf("what goes over the wire is %s", got)
	}
	if h.Get("Keyhold-Application") != "shop" || h.Get("Keyhold-Store") != "store-1" {
		t.Errorf("who calls: %v", h)
	}
}
