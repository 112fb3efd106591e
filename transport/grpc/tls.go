package grpc

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// TLS names the files by which nodes prove themselves to one another.
type TLS struct {
	CertFile string // of this node, PEM; good for both server and client, and followed by those between it and the authority
	KeyFile  string
	CAFile   string // of the authority, or authorities, that signed the nodes' certificates
	// Names, if any: a certificate counts only if one of its DNS names or URIs matches one of them. A * stands for one part between dots or slashes: *.shop.internal,
	// spiffe://shop/nodes/*.
	Names []string

	now func() time.Time // by which the node's own certificate is looked at; tests have their own
}

// MutualTLS has both sides of each link show a certificate of the same authority. The files are looked at with each new link, and once a minute, and read again when they have changed: no restart is
// needed, and open links stay. Before the node's own certificate ends, from a quarter of its life or seven days on, whichever is shorter, that is logged, once a day and in the last day once
// an hour; see [Peers.Certificate]. When it has ended, what there is stays: open links for an hour at most, new ones are refused.
func MutualTLS(certFile, keyFile, caFile string, names ...string) *TLS {
	return &TLS{CertFile: certFile, KeyFile: keyFile, CAFile: caFile, Names: names}
}

func (t *TLS) faults() []error {
	var faults []error
	for what, file := range map[string]string{"certificate": t.CertFile, "key": t.KeyFile, "authority's certificate": t.CAFile} {
		if file == "" {
			faults = append(faults, fmt.Errorf("TLS: the file of the %s is not named", what))
		}
	}
	for _, n := range t.Names {
		if _, err := path.Match(n, ""); n == "" || err != nil {
			faults = append(faults, fmt.Errorf("TLS: the name pattern %q is none: a * stands for one part between dots or slashes", n))
		}
	}
	return faults
}

// certificates are what the files held when they last made sense.
type certificates struct {
	files  *TLS
	logger *slog.Logger
	now    func() time.Time
	mu     struct {
		sync.Mutex
		seen [3]os.FileInfo
		cert *tls.Certificate
		pool *x509.CertPool
		told string // the last complaint, so that it is made once
	}
}

func loadCertificates(t *TLS, logger *slog.Logger) (*certificates, error) {
	c := &certificates{files: t, logger: logger, now: time.Now}
	if t.now != nil {
		c.now = t.now
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c, c.read()
}

// current reads the files again if they have changed. While they make no sense, as in the middle of being replaced, what they held before counts.
func (c *certificates) current() (*tls.Certificate, *x509.CertPool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.read(); err != nil && err.Error() != c.mu.told {
		c.mu.told = err.Error()
		c.logger.Error("node service: the certificates have changed and cannot be used; those from before still are", "error", err)
	}
	return c.mu.cert, c.mu.pool
}

// read is called with the lock held. The files are small and local, and nobody can go on without them.
func (c *certificates) read() error {
	var seen [3]os.FileInfo
	same := true
	for i, file := range []string{c.files.CertFile, c.files.KeyFile, c.files.CAFile} {
		info, err := os.Stat(file)
		if err != nil {
			return fmt.Errorf("TLS: %w", err)
		}
		old := c.mu.seen[i]
		same = same && old != nil && os.SameFile(old, info) && old.ModTime().Equal(info.ModTime()) && old.Size() == info.Size()
		seen[i] = info
	}
	if same {
		return nil
	}
	cert, err := tls.LoadX509KeyPair(c.files.CertFile, c.files.KeyFile)
	if err != nil {
		return fmt.Errorf("TLS: certificate %s and key %s: %w", c.files.CertFile, c.files.KeyFile, err)
	}
	if err := timely(cert.Leaf, c.now()); err != nil {
		return fmt.Errorf("TLS: certificate %s %w: replace it and its key, %s", c.files.CertFile, err, c.files.KeyFile)
	}
	pem, err := os.ReadFile(c.files.CAFile)
	if err != nil {
		return fmt.Errorf("TLS: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bytes.TrimSpace(pem)) {
		return fmt.Errorf("TLS: %s holds no certificate of an authority in PEM form", c.files.CAFile)
	}
	if c.mu.cert != nil {
		c.logger.Info("node service: the certificates have changed, and count for new links", "ends", cert.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	c.mu.seen, c.mu.cert, c.mu.pool, c.mu.told = seen, &cert, pool, ""
	return nil
}

// timely says why nobody would take a certificate at this time.
func timely(cert *x509.Certificate, now time.Time) error {
	switch {
	case now.After(cert.NotAfter):
		return fmt.Errorf("has ended at %s", cert.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(cert.NotBefore):
		return fmt.Errorf("does not begin before %s, and it is %s here", cert.NotBefore.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}

// server and client check the other side's certificate themselves, on each handshake: by authority and name pattern, not by address, for nodes come and go at any.
func (c *certificates) server() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true,
		GetCertificate:   func(*tls.ClientHelloInfo) (*tls.Certificate, error) { cert, _ := c.current(); return cert, nil },
		VerifyConnection: func(s tls.ConnectionState) error { return c.verify(s, x509.ExtKeyUsageClientAuth) }}
}

func (c *certificates) client() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, // VerifyConnection does it
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { cert, _ := c.current(); return cert, nil },
		VerifyConnection:     func(s tls.ConnectionState) error { return c.verify(s, x509.ExtKeyUsageServerAuth) }}
}

// errUntrusted is what a certificate is that does not count.
var errUntrusted = errors.New("the certificate of the other side does not count")

func (c *certificates) verify(s tls.ConnectionState, usage x509.ExtKeyUsage) error {
	if len(s.PeerCertificates) == 0 {
		return fmt.Errorf("%w: it has shown none", errUntrusted)
	}
	_, pool := c.current()
	between := x509.NewCertPool()
	for _, cert := range s.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	leaf := s.PeerCertificates[0]
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
		return fmt.Errorf("%w: %w; it is for %q, signed by %q, until %s", errUntrusted, err, namesOf(leaf), leaf.Issuer, leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if !named(c.files.Names, leaf) {
		return fmt.Errorf("%w: none of its names, %q, is as configured, %q", errUntrusted, namesOf(leaf), c.files.Names)
	}
	return nil
}

func namesOf(cert *x509.Certificate) []string {
	names := append([]string(nil), cert.DNSNames...)
	for _, u := range cert.URIs {
		names = append(names, u.String())
	}
	return names
}

func named(patterns []string, cert *x509.Certificate) bool {
	parts := strings.NewReplacer(".", "/")
	for _, pattern := range patterns {
		for _, name := range namesOf(cert) {
			if ok, _ := path.Match(parts.Replace(pattern), parts.Replace(name)); ok {
				return true
			}
		}
	}
	return len(patterns) == 0
}

// noting is TLS that tells why a link was refused: gRPC itself keeps only a text, among others.
type noting struct {
	credentials.TransportCredentials
	link *link
}

func (n noting) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := n.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		n.link.note(err)
		return nil, nil, err
	}
	return &noted{Conn: conn, link: n.link}, info, nil
}

func (n noting) Clone() credentials.TransportCredentials {
	return noting{n.TransportCredentials.Clone(), n.link}
}

// noted hears of a refusal after the handshake: in TLS 1.3 the server looks at a client's certificate when the client is through.
type noted struct {
	net.Conn
	link *link
}

func (n *noted) Read(b []byte) (int, error) {
	i, err := n.Conn.Read(b)
	if err != nil {
		n.link.note(err)
	} else {
		n.link.refused.Store(nil)
	}
	return i, err
}

// refusal gives why the other side, or this one, does not want the link; nil = err says nothing of that.
func refusal(err error) error {
	var op *net.OpError
	var plain tls.RecordHeaderError
	switch {
	case errors.Is(err, errUntrusted):
		return err
	case errors.As(err, &op) && op.Op == "remote error":
		return fmt.Errorf("the other side does not accept this side's certificate (%w): both must be signed by an authority that the other one trusts, be within their time, and have a name as configured", err)
	case errors.As(err, &plain):
		return errors.New("the other side does not speak TLS: give it the same TLS settings")
	}
	return nil
}

// watched closes a connection on which nothing is heard: the kernel of a frozen process goes on answering, and a cut network tells nobody.
type watched struct {
	net.Conn
	silence time.Duration
}

func (w *watched) Read(b []byte) (int, error) {
	if err := w.SetReadDeadline(time.Now().Add(w.silence)); err != nil {
		return 0, err
	}
	return w.Conn.Read(b)
}
