package gossip

import (
	"errors"
	"log"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/keyhold/keyhold/internal/said"
)

// logs says what a person should know; the library's own lines, most of which are of a network as networks are, are for who debugs. Whoever reaches the port can cause warnings, from
// as many addresses as he likes: of each kind a few lines are written a minute, and the others counted.
type logs struct {
	out   atomic.Pointer[slog.Logger]
	kinds [len(kinds)]said.Kind
}

// kind is a kind of warning.
type kind uint8

const (
	unreadable kind = iota
	foreign
	refused
	copied
	noUDP
	badSeed
	unknownSeed
	ownNetwork
)

var kinds = [...]string{
	unreadable:  "cannot read what a node says",
	foreign:     "ignores what is not a member of this application",
	refused:     "refuses to become one list of members with another application's",
	copied:      "hears of two nodes that go by one id",
	noUDP:       "comes through over TCP, and not over UDP",
	badSeed:     "passes over a seed that is no host:port",
	unknownSeed: "finds no address of a seed",
	ownNetwork:  "has trouble with its own network",
}

func newLogs(out *slog.Logger) *logs {
	l := &logs{}
	if out == nil {
		out = slog.New(slog.DiscardHandler)
	}
	l.out.Store(out)
	return l
}

// warn says something about somebody, an address as a rule.
func (l *logs) warn(of kind, about, text string, args ...any) {
	more, write := l.kinds[of].Note(said.Host(about))
	l.sum(of, more)
	if write {
		l.out.Load().Warn("gossip "+kinds[of]+text, args...)
	}
}

// catchUp tells of what was left unsaid where nothing of its kind has come since.
func (l *logs) catchUp() {
	for of := range kinds {
		l.sum(kind(of), l.kinds[of].Over())
	}
}

func (l *logs) sum(of kind, more string) {
	if more != "" {
		l.out.Load().Warn("gossip " + kinds[of] + ": " + more)
	}
}

// notJoined tells of a join that did not come about. That a node which was there does not answer is nothing new.
func (l *logs) notJoined(address string, err error) {
	if what := advice(err); what != "" {
		l.warn(unreadable, address, ": "+what, "address", address, "error", strings.Join(strings.Fields(err.Error()), " "))
		return
	}
	l.out.Load().Debug("gossip does not reach a node", "address", address, "error", err)
}

func between(text, after, before string) string {
	_, text, _ = strings.Cut(text, after)
	text, _, _ = strings.Cut(text, before)
	return text
}

// standard gives the library a logger of its own, so that nothing of it goes to the process's.
func (l *logs) standard() *log.Logger { return log.New(l, "", 0) }

// Write implements [io.Writer] for one line of the library.
func (l *logs) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	_, bare, found := strings.Cut(text, "memberlist: ")
	if !found {
		bare = text
	}
	_, from, received := strings.Cut(bare, "from=")
	if !received { // or it is about a join, of which notJoined tells, too
		from = between(bare, "failed to join ", ": ")
	}
	switch {
	case strings.Contains(bare, "over TCP but UDP probes failed"):
		l.warn(noUDP, between(bare, "connect to ", " "), ": let UDP through on the port of Bind, or use the preset TCPOnly", "library", bare)
	case advice(errors.New(bare)) != "":
		l.warn(unreadable, from, ": "+advice(errors.New(bare)), "address", from, "error", bare)
	default:
		l.out.Load().Debug("gossip: " + bare)
	}
	return len(line), nil
}
