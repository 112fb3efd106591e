package brokertest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/transport"
)

// Config says how a [Server] is. The zero value is useful.
type Config struct {
	Traits   partitions.Traits // default: 15 s, 3 s, 3 s. Leased is taken for granted
	RealTime bool              // the clock runs by itself as well
	Limits   transport.Limits  // default: 10,000 entries of a stream, the oldest trimmed, read or not; 1 h
}

// Server is what nodes share: streams, leases, registrations, in memory. All methods may be called concurrently.
type Server struct {
	traits partitions.Traits
	limits transport.Limits
	epoch  time.Time // zero unless the clock runs by itself
	broken atomic.Pointer[func(Call) Fault]

	mu struct {
		sync.Mutex
		passed  time.Duration
		amnesty time.Duration // no lease is granted before
		losses  int           // of memory, so far
		written int           // entries by other programs
		owners  int
		full    bool
		deaf    bool // wakes are lost
		started map[*Broker]transport.Node
		contents
	}
}

// contents are what a flush takes.
type contents struct {
	units       map[event.Unit]*lease
	streams     map[event.LaneRef]*stream
	newest      map[event.LaneRef]event.Sequence // also of streams that were taken without a word
	index       map[string]set                   // keys by category
	busy        map[string]set                   // keys by subscriber
	halted      map[string]set
	categories  map[string]transport.Produced
	claims      map[string]claim // by category
	subscribers map[subscription]transport.Subscriber
	members     map[string]member // by id
	wanted      map[place]transport.Wanted
	served      map[place]*run
	asked       int // requests that were ever made
	sources     map[sourceName]*source
}

type set map[string]struct{}

type subscription struct{ name, category string }

// place is a lane as one unit reads it.
type place struct {
	unit event.Unit
	lane event.LaneRef
}

// Call is one call that a node makes. Batches make one for each of their elements.
type Call struct {
	Node string
	Op   string // "append", "trim", "retire", "acquire", "fetch", "beat", ...
	Lane event.LaneRef
	Unit event.Unit
}

// Fault is how a call goes wrong.
type Fault uint8

// Not at all; refused, with nothing done; done, with the answer lost.
const (
	None Fault = iota
	Refused
	Lost
)

// ErrRefused and ErrLost are what such calls give; both are transient.
var (
	ErrRefused = errors.New("broker in memory: the connection is refused")
	ErrLost    = errors.New("broker in memory: the answer is lost")
)

// NewServer makes an empty one.
func NewServer(c Config) *Server {
	c.Traits.Leased = true
	if c.Traits.TTL == 0 {
		c.Traits.TTL, c.Traits.Heartbeat, c.Traits.Margin = 15*time.Second, 3*time.Second, 3*time.Second
	}
	if c.Limits.MaxAhead == 0 {
		c.Limits.MaxAhead = 10_000
	}
	if c.Limits.RetireAfter == 0 {
		c.Limits.RetireAfter = time.Hour
	}
	s := &Server{traits: c.Traits, limits: c.Limits}
	if c.RealTime {
		s.epoch = time.Now()
	}
	s.mu.contents = newContents()
	s.mu.started = make(map[*Broker]transport.Node)
	return s
}

func newContents() contents {
	return contents{
		units: make(map[event.Unit]*lease), streams: make(map[event.LaneRef]*stream),
		index: make(map[string]set), busy: make(map[string]set), halted: make(map[string]set),
		categories: make(map[string]transport.Produced), claims: make(map[string]claim), subscribers: make(map[subscription]transport.Subscriber),
		members: make(map[string]member), wanted: make(map[place]transport.Wanted), served: make(map[place]*run),
		sources: make(map[sourceName]*source), newest: make(map[event.LaneRef]event.Sequence),
	}
}

// now is called with the lock held, as is everything below whose receiver is not exported.
func (s *Server) now() time.Duration {
	if s.epoch.IsZero() {
		return s.mu.passed
	}
	return s.mu.passed + time.Since(s.epoch)
}

// Pass lets time pass.
func (s *Server) Pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.passed += d
}

// Forget loses everything, as FLUSHALL does, grants no lease for one TTL, and tells the nodes.
func (s *Server) Forget() {
	s.mu.Lock()
	s.mu.contents = newContents()
	s.mu.amnesty = s.now() + s.traits.TTL
	s.mu.losses++
	s.mu.Unlock()
	s.TellForgot()
}

// TellForgot tells the nodes that memory was lost, be it true or not.
func (s *Server) TellForgot() {
	for _, n := range s.nodes() {
		if n.Forgot != nil {
			n.Forgot()
		}
	}
}

func (s *Server) nodes() []transport.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []transport.Node
	for _, n := range s.mu.started {
		all = append(all, n)
	}
	return all
}

// LoseTail takes the newest n entries off a stream without a word, as a replica does that was behind when it was promoted.
func (s *Server) LoseTail(lane event.LaneRef, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.mu.streams[lane]; st != nil {
		st.entries = slices.Clone(st.entries[:max(0, len(st.entries)-n)]) // readers may have the old ones
		s.mu.newest[lane] = st.newest()
		for name, passed := range st.passed {
			st.passed[name] = min(passed, st.newest())
		}
	}
}

// Delete takes a stream without a word. What its newest entry was is known still, as with Cut.
func (s *Server) Delete(lane event.LaneRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.streams, lane)
}

// Cut takes the entries of a stream up to through without a word, read or not; all of them too.
func (s *Server) Cut(lane event.LaneRef, through event.Sequence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.mu.streams[lane]; st != nil {
		st.cut(through)
	}
}

// Want is a request for what a unit misses of a lane after a sequence, whoever wrote it.
func (s *Server) Want(u event.Unit, lane event.LaneRef, after event.Sequence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.asked++
	s.mu.wanted[place{u, lane}] = transport.Wanted{Unit: u, Lane: lane, After: after, ID: strconv.Itoa(s.mu.asked)}
}

// Fill has appends refused for want of memory, until it is emptied again.
func (s *Server) Fill(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.full = full
}

// Deafen has wakes lost, until the nodes hear again and are told to look for what they missed.
func (s *Server) Deafen(deaf bool) {
	s.mu.Lock()
	s.mu.deaf = deaf
	s.mu.Unlock()
	for _, n := range s.nodes() {
		if !deaf && n.Rescan != nil {
			n.Rescan()
		}
	}
}

// Break has calls go wrong as f says; nil has them go well. f is called before anything is done, outside of any lock: it may wait, and must be safe for concurrent use.
func (s *Server) Break(f func(Call) Fault) {
	if f == nil {
		s.broken.Store(nil)
		return
	}
	s.broken.Store(&f)
}

// Stream gives the entries of a stream.
func (s *Server) Stream(lane event.LaneRef) []event.Envelope {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.mu.streams[lane]; st != nil {
		return append([]event.Envelope(nil), st.entries...)
	}
	return nil
}

// IsBusy reports whether a unit is among those that have work.
func (s *Server) IsBusy(u event.Unit) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, busy := s.mu.busy[u.Name][u.Key]
	return busy
}

// fault asks how a call goes. It takes no lock: calls that came one after the other for its sake would hide from the race detector that f is not safe.
func (s *Server) fault(c Call) Fault {
	if f := s.broken.Load(); f != nil {
		return (*f)(c)
	}
	return None
}

// mark adds a unit to those that have work, and reports whether it was not among them.
func (s *Server) mark(u event.Unit) bool {
	if _, busy := s.mu.busy[u.Name][u.Key]; busy {
		return false
	}
	add(s.mu.busy, u.Name, u.Key)
	return true
}

// wake tells the nodes that listen. It is called without the lock.
func (s *Server) wake(units []event.Unit) {
	if len(units) == 0 {
		return
	}
	s.mu.Lock()
	deaf := s.mu.deaf
	s.mu.Unlock()
	if deaf {
		return
	}
	for _, n := range s.nodes() {
		for _, u := range units {
			if n.Wake != nil && listens(&n, u.Name) {
				n.Wake(u)
			}
		}
	}
}

func listens(n *transport.Node, name string) bool {
	for i := range n.Subscriptions {
		if n.Subscriptions[i].Name == name {
			return true
		}
	}
	return false
}

func add(sets map[string]set, name, key string) {
	if sets[name] == nil {
		sets[name] = make(set)
	}
	sets[name][key] = struct{}{}
}

// call does f under the lock, unless the call goes wrong.
func (s *Server) call(c Call, f func() error) error {
	fault := s.fault(c)
	if fault == Refused {
		return fmt.Errorf("%s: %w", c.Op, ErrRefused)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := f(); err != nil {
		return err
	}
	if fault == Lost {
		return fmt.Errorf("%s: %w", c.Op, ErrLost)
	}
	return nil
}

// Served gives the run that the producer wrote for a unit: the sequence after which it begins, and its entries.
func (s *Server) Served(u event.Unit, lane event.LaneRef) (event.Sequence, []event.Envelope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.mu.served[place{u, lane}]
	if got == nil {
		return 0, nil
	}
	return got.after, slices.Clone(got.entries)
}
