package grpc_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/grpc"
)

const patience = 30 * time.Second

var shop = transport.PeerIdentity{Application: "shop", StoreID: "store-1"}

// echo answers with what it was asked.
type echo struct{}

func (echo) Ask(_ context.Context, q transport.PeerAsk) (transport.PeerReply, error) {
	return transport.PeerReply{Type: q.Type, Version: q.Version, Encoding: q.Encoding, Data: q.Data}, nil
}
func (echo) Tell(context.Context, transport.PeerAsk) error { return nil }
func (echo) Wake([]event.Unit)                             {}
func (echo) Probe([]transport.PeerProbe)                   {}
func (echo) Status(context.Context) (transport.PeerStatus, error) {
	return transport.PeerStatus{Ready: "echo"}, nil
}

// holding answers when it is let go, and says when it is asked, and when a caller went.
type holding struct {
	echo
	inside, over chan struct{}
	let          chan struct{}
}

func newHolding() *holding {
	return &holding{inside: make(chan struct{}, 1000), over: make(chan struct{}, 1000), let: make(chan struct{})}
}

func (h *holding) Ask(ctx context.Context, q transport.PeerAsk) (transport.PeerReply, error) {
	h.inside <- struct{}{}
	select {
	case <-h.let:
		return h.echo.Ask(ctx, q)
	case <-ctx.Done():
		h.over <- struct{}{}
		return transport.PeerReply{}, ctx.Err()
	}
}

func limit(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func start(t testing.TB, c grpc.Config, s transport.PeerService) *grpc.Peers {
	t.Helper()
	if c.Logger == nil {
		c.Logger = quiet
	}
	p := grpc.New(c)
	if err := p.Start(limit(t), shop, s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, p) })
	return p
}

func stop(t testing.TB, p *grpc.Peers) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func question() transport.PeerAsk {
	return transport.PeerAsk{To: event.Unit{Name: "order", Key: "1"}, Type: "order.place", Version: 1, Encoding: event.JSON, Data: []byte(`{"id":"1"}`)}
}

func asking(ctx context.Context, p *grpc.Peers, address string) <-chan error {
	out := make(chan error, 1)
	go func() {
		_, err := p.Ask(ctx, address, question())
		out <- err
	}()
	return out
}

func fails(t testing.TB, err error, code transport.PeerCode, unknown bool) *transport.PeerError {
	t.Helper()
	var e *transport.PeerError
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want the error %q", err, code)
	}
	if e.Code != code || e.Unknown != unknown {
		t.Errorf("got %q (unknown: %v, %s), want %q (unknown: %v)", e.Code, e.Unknown, e.Text, code, unknown)
	}
	return e
}

func within[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-limit(t).Done():
		t.Fatal("did not happen: ", what)
		panic("unreachable")
	}
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

type certificate struct {
	dir      string // default one of its own
	names    []string
	expired  bool          // a minute ago
	early    bool          // begins in half an hour
	ends     time.Duration // from now on; default an hour
	patterns []string
	trusts   *authority // default the one that signs
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{key: newKey(t), file: filepath.Join(t.TempDir(), "ca.pem")}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	write(t, a.file, "CERTIFICATE", der)
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue writes a node's certificate and key.
func (a *authority) issue(t testing.TB, c certificate) *grpc.TLS {
	t.Helper()
	if c.dir == "" {
		c.dir = t.TempDir()
	}
	if c.trusts == nil {
		c.trusts = a
	}
	key := newKey(t)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<60))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "node"}, DNSNames: c.names, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if c.ends > 0 {
		template.NotAfter = time.Now().Add(c.ends)
	}
	if c.expired {
		template.NotAfter = time.Now().Add(-time.Minute)
	}
	if c.early {
		template.NotBefore = time.Now().Add(30 * time.Minute)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert, keyFile := filepath.Join(c.dir, "cert.pem"), filepath.Join(c.dir, "key.pem")
	write(t, cert, "CERTIFICATE", der)
	write(t, keyFile, "PRIVATE KEY", private)
	return grpc.MutualTLS(cert, keyFile, c.trusts.file, c.patterns...)
}

// write replaces the file, as whoever renews certificates does.
func write(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	next := file + ".next"
	if err := os.WriteFile(next, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, file); err != nil {
		t.Fatal(err)
	}
}
