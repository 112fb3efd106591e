package keyhold

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/transport"
)

// Config is what an [App] is made of. Name, Store and Transport must be set; zero fields take their default.
type Config struct {
	Name      string              // of the application, the same on all its nodes; a name by the rules of categories
	Store     eventstore.Store    // sqlite.Open("orders.db"), postgres.Open(url), memory.Open(); of this App alone, while it is started
	Transport transport.Transport // local.New(), redis.Open(url), inline.New(); likewise

	// FormerName is the name that the application had before, where it has another one now: its store is given the new one. A store keeps the name of its application, so that
	// no other is started on it by mistake.
	FormerName string

	// Cluster says how nodes reach one another; what is not set, the transport brings along.
	Cluster ClusterConfig

	// Node names this process in messages and ranks: text of at most 255 bytes without spaces and control characters. Default Name@host; what of the host's name may not
	// stand in it is "-" there.
	Node           string
	Wait           bool   // wait while another process has the store open, instead of refusing to start
	NoMigrate      bool   // refuse a store of an older format instead of migrating it
	BackfillSuffix string // of backfill lanes, and refused as a key; default "backfill"; the same for the whole application

	Concurrency int           // behaviors running at once on this node; default 256
	IdleAfter   time.Duration // without work, until an actor is put away; default 30 s
	MailboxSize int           // asks waiting per entity, more are refused with ErrMailboxFull; default 1024
	// MaxCrashes is how often the process may end while an event is in a behavior, and no other suspect beside it, until the key halts
	// before that event; default 3.
	MaxCrashes  int
	DrainWithin time.Duration // how long Main lets work in hand finish after SIGTERM; default 20 s
	// HealAfter is the longest that an event which a broker has lost, and which nobody has asked for, stays lost; default 30 s.
	HealAfter time.Duration
	// Retention is how long replies and records that no entity's stream holds are kept once every handler has passed them;
	// default 7 days.
	Retention time.Duration

	Logger   *slog.Logger // default: text to standard error, from level Info
	Observer Observer     // told beside the log
	// Projections is told beside the log what happens to projections.
	Projections ProjectionObserver
	// Telemetry, such as telemetry.New(telemetry.Options{}), tells a monitoring system beside both. Default: none.
	Telemetry Telemetry
}

func (c Config) withDefaults() Config {
	if c.Node == "" {
		host, err := os.Hostname()
		if err != nil || host == "" {
			host = "localhost"
		}
		c.Node = nodeNamed(c.Name, host)
	}
	if c.DrainWithin == 0 {
		c.DrainWithin = 20 * time.Second
	}
	if c.HealAfter == 0 {
		c.HealAfter = 30 * time.Second
	}
	if c.Retention == 0 {
		c.Retention = 7 * 24 * time.Hour
	}
	if c.Concurrency == 0 {
		c.Concurrency = 256
	}
	if c.IdleAfter == 0 {
		c.IdleAfter = 30 * time.Second
	}
	if c.MailboxSize == 0 {
		c.MailboxSize = 1024
	}
	if c.MaxCrashes == 0 {
		c.MaxCrashes = 3
	}
	if c.Cluster.Version == "" {
		c.Cluster.Version = programVersion()
	}
	if c.Telemetry != nil {
		c.Observer, c.Projections = c.Telemetry.Observer(c.Observer), projectionsTold(c.Telemetry, c.Projections)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return c
}

// keyRules are the rules that every partition key of the application must meet.
func (c Config) keyRules() event.KeyRules { return event.KeyRules{BackfillSuffix: c.BackfillSuffix} }

func (c Config) faults() error {
	var all []error
	add := func(format string, args ...any) { all = append(all, fmt.Errorf("config: "+format, args...)) }
	if err := event.CheckName(c.Name); err != nil {
		add("Name: %w", err)
	}
	if c.FormerName != "" {
		if err := event.CheckName(c.FormerName); err != nil {
			add("FormerName: %w", err)
		}
	}
	if err := checkNode(c.Node); err != nil {
		add("%w", err)
	}
	if c.Store == nil {
		add("Store is nil: set sqlite.Open(path) or postgres.Open(url), or memory.Open() in tests")
	}
	if c.Transport == nil {
		add("Transport is nil: set local.New() or redis.Open(url), or inline.New() in tests")
	}
	if err := c.keyRules().Validate(); err != nil {
		add("BackfillSuffix: %w", err)
	}
	for _, d := range []struct {
		name string
		v    time.Duration
	}{{"IdleAfter", c.IdleAfter}, {"DrainWithin", c.DrainWithin}, {"Retention", c.Retention}, {"HealAfter", c.HealAfter}} {
		if d.v < 0 {
			add("%s is %v: it cannot be negative", d.name, d.v)
		}
	}
	for _, n := range []struct {
		name string
		v    int
	}{{"Concurrency", c.Concurrency}, {"MailboxSize", c.MailboxSize}, {"MaxCrashes", c.MaxCrashes}} {
		if n.v < 0 {
			add("%s is %d: it cannot be negative", n.name, n.v)
		}
	}
	return errors.Join(append(all, c.Cluster.faults(c.Transport))...)
}

// mostNode is the longest name of a node, in bytes.
const mostNode = 255

// checkNode says what is wrong with the name of a node, in an [*event.IDError].
func checkNode(node string) error {
	const otherwise = ": name it as in orders-1, or leave Node empty for Name@host"
	unfit := func(reason string) error { return &event.IDError{What: "Node", ID: node, Reason: reason + otherwise} }
	switch {
	case strings.TrimSpace(node) == "":
		return unfit("has nothing but spaces")
	case len(node) > mostNode:
		return unfit(fmt.Sprintf("is %d bytes long, %d are allowed", len(node), mostNode))
	}
	if err := event.CheckID("Node", node); err != nil {
		return err
	}
	if strings.ContainsFunc(node, unicode.IsSpace) {
		return unfit("has a space in it")
	}
	return nil
}

// nodeNamed is the name of a node that was given none, which is never refused for what the host is called.
func nodeNamed(name, host string) string {
	node := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || unicode.IsControl(r) || r == unicode.ReplacementChar { // as which bytes are seen that are no UTF-8
			return '-'
		}
		return r
	}, name+"@"+host)
	if from := len(node) - mostNode; from > 0 { // what tells nodes apart is at the end
		node = strings.ToValidUTF8(node[from:], "")
	}
	return node
}
