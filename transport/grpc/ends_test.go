package grpc_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/transport/grpc"
)

// locked is a buffer that several goroutines use.
type locked struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

func (l *locked) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.Reset()
}

const day = 24 * time.Hour

// A certificate of a month is warned of in its last week, once a day and then once an hour; after its end the node goes on saying so; and not any more when it is replaced.
func TestTheEndOfTheNodesOwnCertificateIsToldBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log locked
		pass := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		ours, dir := newAuthority(t), t.TempDir()
		begin := time.Now()
		p := start(t, grpc.Config{TLS: ours.issue(t, certificate{dir: dir, ends: 30 * day}), Logger: slog.New(slog.NewTextHandler(&log, nil))}, nil)
		lines := func(want int, after string) {
			t.Helper()
			synctest.Wait()
			if n := strings.Count(log.String(), "level=WARN"); n != want {
				t.Errorf("%s there are %d warnings, want %d:\n%s", after, n, want, log.String())
			}
			log.Reset()
		}
		ends, words := p.Certificate()
		if !ends.Equal(begin.Add(30*day).Truncate(time.Second)) || words != "" {
			t.Errorf("at the start: %v, %q", ends, words)
		}
		pass(23*day - time.Minute)
		lines(0, "before the last week")
		pass(2 * time.Minute)
		_, words = p.Certificate()
		if !strings.Contains(log.String(), "the certificate of this node ends at 2000-01-31T00:00:00Z: replace ") || !strings.Contains(log.String(), "left=168h0m0s") || !strings.Contains(words, "which are read again while the node runs") {
			t.Errorf("it says %q, and\n%s", words, log.String())
		}
		lines(1, "in the last week")
		pass(5 * day)
		lines(5, "in five days")
		pass(2*day - 2*time.Minute)
		lines(24, "in the last two days")
		pass(2*time.Hour + 2*time.Minute)
		if _, words = p.Certificate(); !strings.Contains(words, "has ended at 2000-01-31T00:00:00Z, and new links") || !strings.Contains(log.String(), "has ended") {
			t.Errorf("after the end it says %q, and\n%s", words, log.String())
		}
		log.Reset()
		ours.issue(t, certificate{dir: dir, ends: 30 * day})
		pass(day)
		if _, words = p.Certificate(); words != "" || !strings.Contains(log.String(), `level=INFO msg="node service: the certificates have changed, and count for new links" ends=2000-03-01`) {
			t.Errorf("of the new one it says %q, and\n%s", words, log.String())
		}
		lines(0, "with the new one")
		stop(t, p)
		if ends, words := p.Certificate(); !ends.IsZero() || words != "" {
			t.Errorf("stopped: %v, %q", ends, words)
		}
	})
}

// One of a few hours is warned of in the last quarter of its life.
func TestTheEndOfACertificateOfHoursIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, grpc.Config{TLS: newAuthority(t).issue(t, certificate{ends: 3 * time.Hour})}, nil) // since an hour
		<-time.After(119 * time.Minute)
		if _, words := p.Certificate(); words != "" {
			t.Errorf("before: %q", words)
		}
		<-time.After(2 * time.Minute)
		if _, words := p.Certificate(); words == "" {
			t.Error("in its last quarter it says nothing")
		}
	})
}

func TestWithoutTLSNothingEnds(t *testing.T) {
	t.Parallel()
	if ends, words := start(t, grpc.Config{}, nil).Certificate(); !ends.IsZero() || words != "" {
		t.Errorf("%v, %q", ends, words)
	}
}
