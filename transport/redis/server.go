package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// server is one Redis server that takes writes. Its two clients share nothing, so that renewals wait for nobody.
type server struct {
	addr    string // "" of the master that Sentinels tell of
	work    *goredis.Client
	renewal *goredis.Client
	lines   lines
	birth   atomic.Pointer[string] // name of its birth key, in a Cluster
	asked   atomic.Bool            // who has which slots: it has not answered yet
}

func (s *server) close() error { return errors.Join(s.work.Close(), s.renewal.Close()) }

// via says on which of its connections a call goes.
type via func(*server) *goredis.Client

func onWork(s *server) *goredis.Client    { return s.work }
func onRenewal(s *server) *goredis.Client { return s.renewal }

// servers are the servers behind a transport. A Cluster's are known by slot; where one answers that a slot moved, it is asked for there the next time.
type servers struct {
	cluster bool
	legacy  bool // before 7.0: scripts have no flags
	version string
	open    func(addr string) *server
	aside   func(func(context.Context)) bool // runs something beside others, or tells that it does not; nil: nothing is

	mu struct {
		sync.RWMutex
		byAddr   map[string]*server
		bySlot   []*server // of a Cluster; nil where nobody is known
		learning bool      // they are asked again just now
		learned  time.Time // when that was last over
		closed   bool
	}
}

// of is the server that has a key.
func (s *servers) of(key string) *server {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.cluster {
		return s.mu.bySlot[slotOf(key)]
	}
	for _, only := range s.mu.byAddr {
		return only
	}
	return nil
}

// all are the servers that have slots, in no order.
func (s *servers) all() []*server {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.cluster {
		return []*server{s.one()}
	}
	var all []*server
	seen := make(map[*server]bool)
	for _, has := range s.mu.bySlot {
		if has != nil && !seen[has] {
			seen[has] = true
			all = append(all, has)
		}
	}
	return all
}

// inOrder are those that have slots, in order of address.
func (s *servers) inOrder() []*server {
	all := s.all()
	slices.SortFunc(all, func(a, b *server) int { return strings.Compare(a.addr, b.addr) })
	return all
}

// one is any server; called with the lock held.
func (s *servers) one() *server {
	for _, one := range s.mu.byAddr {
		return one
	}
	return nil
}

// at is the server of an address, which may be new.
func (s *servers) at(addr string) (*server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.locate(addr)
}

// locate is at with the lock held.
func (s *servers) locate(addr string) (*server, error) {
	if s.mu.closed {
		return nil, goredis.ErrClosed
	}
	known := s.mu.byAddr[addr]
	if known == nil {
		known = s.open(addr)
		s.mu.byAddr[addr] = known
	}
	return known, nil
}

// moved notes where a slot is now, as a server said: "MOVED 3999 127.0.0.1:6381". An empty host is that of the server that said it.
func (s *servers) moved(from *server, reply string) (*server, error) {
	fields := strings.Fields(reply)
	if len(fields) < 3 {
		return nil, fmt.Errorf("redirection %q is none", reply)
	}
	slot, err := strconv.Atoi(fields[1])
	if err != nil || slot < 0 || slot >= slots || !s.cluster {
		return nil, fmt.Errorf("redirection %q is none", reply)
	}
	addr := fields[2]
	if strings.HasPrefix(addr, ":") {
		addr = from.addr[:strings.LastIndexByte(from.addr, ':')] + addr
	}
	to, err := s.at(addr)
	if err != nil || fields[0] == codeAsk {
		return to, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.bySlot[slot] = to
	return to, nil
}

func (s *servers) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var faults []error
	for _, one := range s.mu.byAddr {
		faults = append(faults, one.close())
	}
	clear(s.mu.byAddr)
	clear(s.mu.bySlot)
	s.mu.closed = true
	return errors.Join(faults...)
}
