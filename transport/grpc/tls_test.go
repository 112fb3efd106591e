package grpc_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/grpc"
)

func TestCertificatesThatDoNotCount(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	good := ours.issue(t, certificate{names: []string{"a.shop.internal"}})
	earlier := time.Now().Add(-10 * time.Minute) // whose certificate has expired since it was read
	for name, c := range map[string]struct {
		server, client *grpc.TLS
		say            string // to who asks
		told           string // in the log of the other side, where it is the one that refuses: what it hears of a refusal may be lost with the link
	}{
		"the client's authority is another":           {good, theirs.issue(t, certificate{trusts: ours}), "does not accept this side's certificate", "unknown authority"},
		"the server's authority is another":           {theirs.issue(t, certificate{trusts: ours}), good, "unknown authority", ""},
		"the client's certificate has expired":        {good, grpc.At(ours.issue(t, certificate{expired: true}), earlier), "does not accept this side's certificate", "certificate has expired"},
		"the server's certificate has expired":        {grpc.At(ours.issue(t, certificate{expired: true}), earlier), good, "expired", ""},
		"the client's name is not as the server asks": {ours.issue(t, certificate{patterns: []string{"*.bakery.internal"}}), good, "does not accept this side's certificate", "is as configured"},
		"the server's name is not as the client asks": {good, ours.issue(t, certificate{patterns: []string{"shop.internal", "*.bakery.internal"}}), "a.shop.internal", ""},
		"the client has none":                         {good, nil, "", "does not speak TLS"},
		"the server has none":                         {nil, good, "does not speak TLS", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var there, here lines
			b := start(t, grpc.Config{TLS: c.server, Logger: there.logger()}, echo{})
			a := start(t, grpc.Config{TLS: c.client, Logger: here.logger()}, nil)
			_, err := a.Ask(limit(t), b.Address(), question())
			if c.client == nil { // the server hangs up on what is no TLS, and cannot say why
				var e *transport.PeerError
				for ctx := limit(t); ; _, err = a.Ask(ctx, b.Address(), question()) {
					if !errors.As(err, &e) || e.Code != transport.PeerUnavailable {
						t.Fatalf("got %v", err)
					}
					if strings.Contains(e.Text, "TLS settings") { // not so where writing to it fails first
						break
					}
				}
			} else {
				err = word(limit(t), func(ctx context.Context) error { _, err := a.Ask(ctx, b.Address(), question()); return err })
				if e := fails(t, err, transport.PeerDenied, false); !strings.Contains(e.Text, c.say) {
					t.Errorf("it says %q, want %q", e.Text, c.say)
				}
				if got := here.with("level=WARN", "a link to another node did not come about", "to="+b.Address(), c.say); len(got) != 1 {
					t.Errorf("%d lines of the one who asks have it:\n%s", len(got), here.with(""))
				}
			}
			stop(t, a)
			stop(t, b) // what came of the link is told by now
			if got := there.with("level=WARN", "a link to this node did not come about", "from=127.0.0.1:", c.told); c.told != "" && len(got) != 1 {
				t.Errorf("%d lines of the other one have %q:\n%s", len(got), c.told, there.with(""))
			}
		})
	}
}

// lines are a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// with gives the lines that have all of these texts.
func (l *lines) with(texts ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			found = append(found, line)
		}
	}
	return found
}

func TestACertificateOfTheRightNameCounts(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	for _, pattern := range []string{"*.shop.internal", "a.shop.*", "a.shop.internal"} {
		files := ours.issue(t, certificate{names: []string{"other", "a.shop.internal"}, patterns: []string{"none.of.them", pattern}})
		b := start(t, grpc.Config{TLS: files}, echo{})
		if _, err := start(t, grpc.Config{TLS: files}, nil).Ask(limit(t), b.Address(), question()); err != nil {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

// word asks until the other side says why it refuses: a server that hangs up may take its own word for it off the wire with it.
func word(ctx context.Context, ask func(context.Context) error) error {
	for {
		err := ask(ctx)
		var lost *transport.PeerError
		if ctx.Err() != nil || !errors.As(err, &lost) || lost.Code != transport.PeerUnavailable {
			return err
		}
	}
}

func TestAClientWithoutACertificateIsRefused(t *testing.T) {
	t.Parallel()
	b := start(t, grpc.Config{TLS: newAuthority(t).issue(t, certificate{})}, echo{})
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}
	conn, err := d.DialContext(limit(t), "tcp", b.Address())
	if err == nil { // in TLS 1.3 the client hears of it when it reads
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
	}
	if err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("got %v", err)
	}
}

// The link that is open stays while its certificates are replaced, and the call on it is answered; who comes new sees the new ones.
func TestCertificatesAreReadAnew(t *testing.T) {
	t.Parallel()
	before, after := newAuthority(t), newAuthority(t)
	dir := t.TempDir()
	h := newHolding()
	b := start(t, grpc.Config{TLS: before.issue(t, certificate{dir: dir})}, h)
	a := start(t, grpc.Config{TLS: before.issue(t, certificate{})}, nil)
	got := asking(limit(t), a, b.Address())
	within(t, "an ask inside", h.inside)

	after.issue(t, certificate{dir: dir})
	pem, err := os.ReadFile(after.file)
	if err != nil {
		t.Fatal(err)
	}
	replace(t, before.file, pem) // what both sides trust

	c := start(t, grpc.Config{TLS: after.issue(t, certificate{})}, nil)
	if _, err := c.Status(limit(t), b.Address()); err != nil {
		t.Errorf("with a new certificate: %v", err)
	}
	d := start(t, grpc.Config{TLS: before.issue(t, certificate{})}, nil)
	err = word(limit(t), func(ctx context.Context) error { _, err := d.Status(ctx, b.Address()); return err })
	fails(t, err, transport.PeerDenied, false)

	if _, err := a.Status(limit(t), b.Address()); err != nil {
		t.Errorf("on the link of before: %v", err)
	}
	close(h.let)
	if err := within(t, "the answer", got); err != nil {
		t.Errorf("the call of before: %v", err)
	}
}

func replace(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file+".next", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".next", file); err != nil {
		t.Fatal(err)
	}
}

func TestCertificatesThatMakeNoSenseLeaveThoseOfBefore(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	files := ours.issue(t, certificate{})
	var log bytes.Buffer
	b := start(t, grpc.Config{TLS: files, Logger: slog.New(slog.NewTextHandler(&log, nil))}, echo{})
	replace(t, files.CertFile, []byte("half of it"))
	for range 3 {
		p := grpc.New(grpc.Config{TLS: ours.issue(t, certificate{}), Logger: quiet})
		if err := p.Start(limit(t), shop, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Status(limit(t), b.Address()); err != nil {
			t.Errorf("with the certificate of before: %v", err)
		}
		stop(t, p)
	}
	stop(t, b)
	if got := strings.Count(log.String(), "cannot be used"); got != 1 {
		t.Errorf("told %d times:\n%s", got, log.String())
	}
}

func TestACertificateOutOfItsTimeLeavesTheOneOfBefore(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	for say, next := range map[string]certificate{"has ended at 20": {expired: true}, "does not begin before ": {early: true}} {
		next.dir = t.TempDir()
		var log bytes.Buffer
		b := start(t, grpc.Config{TLS: ours.issue(t, certificate{dir: next.dir}), Logger: slog.New(slog.NewTextHandler(&log, nil))}, echo{})
		ours.issue(t, next)
		if _, err := start(t, grpc.Config{TLS: ours.issue(t, certificate{})}, nil).Status(limit(t), b.Address()); err != nil {
			t.Errorf("with the certificate of before: %v", err)
		}
		stop(t, b)
		for _, part := range []string{"those from before still are", say, "replace it and its key"} {
			if !strings.Contains(log.String(), part) {
				t.Errorf("it does not say %q:\n%s", part, log.String())
			}
		}
	}
}

// The one without a logger logs to the one that it is given, and the other to its own.
func TestLogTo(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	var given, own bytes.Buffer
	for _, c := range []struct {
		logger      *slog.Logger
		says, quiet *bytes.Buffer
	}{{nil, &given, &own}, {slog.New(slog.NewTextHandler(&own, nil)), &own, &given}} {
		given.Reset()
		own.Reset()
		files := ours.issue(t, certificate{})
		b := grpc.New(grpc.Config{TLS: files, Logger: c.logger})
		b.LogTo(slog.New(slog.NewTextHandler(&given, nil)))
		if err := b.Start(limit(t), shop, echo{}); err != nil {
			t.Fatal(err)
		}
		replace(t, files.CertFile, []byte("half of it"))
		p := start(t, grpc.Config{TLS: ours.issue(t, certificate{})}, nil)
		if _, err := p.Status(limit(t), b.Address()); err != nil {
			t.Error(err)
		}
		stop(t, b)
		if !strings.Contains(c.says.String(), "cannot be used") || c.quiet.Len() > 0 {
			t.Errorf("one says %q, the other %q", c.says, c.quiet)
		}
	}
}

func TestWhatStartRefuses(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	good := ours.issue(t, certificate{})
	for say, c := range map[string]grpc.Config{
		"without TLS":            {Bind: "0.0.0.0:0", Advertise: "10.0.0.1"},
		"grpc.MutualTLS(":        {Bind: "192.0.2.1:7000"},
		"Insecure: true says":    {Bind: "node.example:7000"},
		"Advertise":              {Bind: ":0", TLS: good},
		"not host:port":          {Bind: "nonsense"},
		"leave one out":          {TLS: good, Insecure: true},
		"no such file":           {TLS: grpc.MutualTLS("none", good.KeyFile, good.CAFile)},
		"private key does not":   {TLS: grpc.MutualTLS(good.CertFile, ours.issue(t, certificate{}).KeyFile, good.CAFile)},
		"has ended at 20":        {TLS: ours.issue(t, certificate{expired: true})},
		"does not begin before ": {TLS: ours.issue(t, certificate{early: true})},
		"certificate of an":      {TLS: grpc.MutualTLS(good.CertFile, good.KeyFile, good.KeyFile)},
		"the key is not named":   {TLS: grpc.MutualTLS(good.CertFile, "", good.CAFile)},
		"name pattern":           {TLS: grpc.MutualTLS(good.CertFile, good.KeyFile, good.CAFile, "[")},
		"MaxMessage is 1":        {MaxMessage: 1},
		"MaxInside is -1":        {MaxInside: -1},
		"MaxBytes is 4096, it":   {MaxBytes: 4096},
		"ConnectTimeout is -1ns": {ConnectTimeout: -1},
		"no address of this":     {Bind: "192.0.2.1:7000", TLS: good},
		"another process has it": {Bind: "127.0.0.1:1", Advertise: "x:1", MaxLinks: 1, TLS: nil},
	} {
		if say == "another process has it" {
			c.Bind = start(t, grpc.Config{}, echo{}).Address()
		}
		p := grpc.New(c)
		err := p.Start(limit(t), shop, echo{})
		if err == nil {
			stop(t, p)
		}
		if err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%+v: got %v, want %q", c, err, say)
		}
	}
}

func TestNothingGoesToOtherMachinesWithoutTLS(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(limit(t))
	for address, code := range map[string]transport.PeerCode{"192.0.2.1:7000": transport.PeerDenied, "node.example:7000": transport.PeerDenied} {
		_, err := start(t, grpc.Config{}, nil).Ask(ctx, address, question())
		fails(t, err, code, false)
	}
	insecure := start(t, grpc.Config{Insecure: true, ConnectTimeout: 1e6}, nil)
	_, err := insecure.Ask(ctx, "192.0.2.1:7000", question())
	fails(t, err, transport.PeerUnavailable, false)
	cancel()
}

func TestAdvertise(t *testing.T) {
	t.Parallel()
	for advertise, want := range map[string]string{"node-1": "node-1:PORT", "node-1:0": "node-1:PORT", "node-1:99": "node-1:99", "": "127.0.0.1:PORT", "::1": "[::1]:PORT"} {
		p := start(t, grpc.Config{Advertise: advertise}, echo{})
		got := p.Address()
		if i := strings.LastIndex(got, ":"); strings.HasSuffix(want, "PORT") && got[i+1:] != "0" {
			want = strings.TrimSuffix(want, "PORT") + got[i+1:]
		}
		if got != want {
			t.Errorf("advertise %q: got %s, want %s", advertise, got, want)
		}
	}
}
