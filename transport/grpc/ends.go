package grpc

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"
)

const (
	// longestNotice is how long before its end a certificate is warned of, and shareOfLife that of its life; the shorter of the two counts.
	longestNotice = 7 * 24 * time.Hour
	shareOfLife   = 4

	watchEvery = time.Minute
	day        = 24 * time.Hour
)

// notice is how long before its end a certificate is warned of.
func notice(cert *x509.Certificate) time.Duration {
	return min(cert.NotAfter.Sub(cert.NotBefore)/shareOfLife, longestNotice)
}

// nextNotice is when it is said again: once a day, and once an hour in the last one and after the end.
func nextNotice(left time.Duration) time.Duration {
	if left > day {
		return min(day, left-day+time.Hour)
	}
	return time.Hour
}

// ending says what is to be done about a certificate that ends soon, or has ended; "" = nothing yet.
func (c *certificates) ending() (ends time.Time, words string) {
	c.mu.Lock()
	cert := c.mu.cert.Leaf
	c.mu.Unlock()
	left := cert.NotAfter.Sub(c.now())
	at := cert.NotAfter.UTC().Format(time.RFC3339)
	mend := fmt.Sprintf("replace %s and %s, which are read again while the node runs", c.files.CertFile, c.files.KeyFile)
	switch {
	case left < 0:
		words = fmt.Sprintf("the certificate of this node has ended at %s, and new links to and from it are refused: %s", at, mend)
	case left <= notice(cert):
		words = fmt.Sprintf("the certificate of this node ends at %s: %s", at, mend)
	}
	return cert.NotAfter, words
}

// watch warns of the end of this node's own certificate, and reads the files again even if no link is made.
func (c *certificates) watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var next time.Time // that it is said
	var of time.Time   // the end of the certificate of which it was said
	for {
		c.current()
		now := c.now()
		ends, words := c.ending()
		if words != "" && (!now.Before(next) || !of.Equal(ends)) {
			left := ends.Sub(now)
			next, of = now.Add(nextNotice(left)), ends
			c.logger.Warn("node service: "+words, "left", left.Round(time.Second).String())
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Certificate implements [transport.Certified].
func (p *Peers) Certificate() (ends time.Time, words string) {
	r := p.running()
	if r == nil || r.tls == nil {
		return time.Time{}, ""
	}
	return r.tls.ending()
}
