package admin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// Verdict says in one word how a store stands.
type Verdict string

const (
	Healthy  Verdict = "healthy"
	Degraded Verdict = "degraded" // something waits for a person, or nobody works on what is there to do
)

// Status is how a store stands.
type Status struct {
	At         time.Time `json:"at"`
	Verdict    Verdict   `json:"verdict"`
	Words      string    `json:"words"` // one line: "degraded: 2 keys of shipping are halted, the oldest for 4 m, and 1 more problem"
	StoreID    string    `json:"store_id"`
	Generation uint64    `json:"generation"` // of the start that owns the store, or did last
	Owner      *Owner    `json:"owner,omitempty"`
	// Nodes are the processes that have the store open, where there can be more than one, in order of start. Which of them the others know as taking part is not in the
	// store: Members tells, at the desk of one of them.
	Nodes      []Owner    `json:"nodes,omitempty"`
	Members    []Member   `json:"members,omitempty"`
	OwnerWords string     `json:"owner_words"` // "process 4711 (orders@host) has the store open", "nobody has the store open"
	Unclean    bool       `json:"unclean,omitempty"`
	Problems   []Problem  `json:"problems"` // the worst first
	Handlers   []Handler  `json:"handlers"`
	Categories []Category `json:"categories"`
	OpenJobs   int        `json:"open_jobs"`
}

// Owner is the process that has the store open.
type Owner struct {
	PID  int    `json:"pid"`
	Node string `json:"node,omitempty"`
	// Others is how many processes have it open beside this one, as nodes of one application.
	Others int `json:"others,omitempty"`
	// Trouble is what keeps it from its share of the work, as it says itself, and Since from when on.
	Trouble string    `json:"trouble,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	// About is what else it says of itself; nil where it is alone, or says nothing.
	About *About `json:"about,omitempty"`
}

// Member is a node of an application, as another one, or itself, knows it.
type Member struct {
	Node     string    `json:"node"`
	PID      int       `json:"pid,omitempty"`      // of its process, since several may have one name
	Here     bool      `json:"here,omitempty"`     // it is this process
	Version  string    `json:"version,omitempty"`  // of its program
	Draining bool      `json:"draining,omitempty"` // it takes no more keys
	Apart    bool      `json:"apart,omitempty"`    // it takes no more keys until its store and its broker answer it again
	Unheard  bool      `json:"unheard,omitempty"`  // gossip does not reach it from here; it keeps its keys while it renews their leases
	Address  string    `json:"address,omitempty"`  // of its node service
	Since    time.Time `json:"since"`
}

// Handler is a handler or entity kind, and how it stands. Counts end at [eventstore.MaxCount].
type Handler struct {
	Name       string    `json:"name"`
	Kind       string    `json:"kind"` // "handler", "entity", ...
	Categories []string  `json:"categories"`
	Types      []string  `json:"types"` // wire names of what it handles
	Sequential bool      `json:"sequential"`
	Since      time.Time `json:"since,omitzero"`
	Running    bool      `json:"running"` // the program that started last has it
	Lag        uint64    `json:"lag"`     // events that it has not passed, but for PassedOver
	// PassedOver is how many it has not passed that are of types which it does not handle, as far as that could be counted cheaply: they are passed with the next one
	// that it does handle, or when their key comes to rest.
	PassedOver uint64    `json:"passed_over,omitempty"`
	Moved      time.Time `json:"moved,omitzero"`
	Halted     int       `json:"halted"`
	Parking    int       `json:"parking"`
	Paused     int       `json:"paused"` // units
	Dead       int       `json:"dead"`
	Trying     int       `json:"trying"`
	Oldest     time.Time `json:"oldest,omitzero"` // when the unit stopped that is stopped longest
	Pause      *Pause    `json:"pause,omitempty"` // of the whole handler
	Words      string    `json:"words"`           // "3 behind, last moved 2 s ago; 2 keys halted"
}

// Category is a category, and how much is in it.
type Category struct {
	Name       string `json:"name"`
	KeyField   string `json:"key_field,omitempty"`
	Buckets    int    `json:"buckets,omitempty"`
	Commands   bool   `json:"commands,omitempty"`
	Partitions uint64 `json:"partitions"`
	Records    uint64 `json:"records"` // ever drawn
	// Lost is how many entries of streams that other programs write were gone before they were taken in, in all, and LostAt when some were last found to be.
	Lost   uint64    `json:"lost,omitempty"`
	LostAt time.Time `json:"lost_at,omitzero"`
}

// Pause is why a unit or a handler reads no further.
type Pause struct {
	Handler string    `json:"handler"`
	Key     string    `json:"key,omitempty"` // "" = the whole handler
	Actor   string    `json:"actor"`
	Reason  string    `json:"reason,omitempty"`
	Since   time.Time `json:"since"`
}

// Status tells how the store stands. Its cost grows with what is stopped, not with what is there.
func (d *Desk) Status(ctx context.Context) (Status, error) {
	if err := d.ready(); err != nil {
		return Status{}, err
	}
	o, err := d.store.Overview(ctx)
	if err != nil {
		return Status{}, err
	}
	s := Status{
		At: d.opts.Now().UTC(), Verdict: Healthy, StoreID: o.StoreID, Generation: uint64(o.StartGeneration), Unclean: o.Unclean,
		Owner: d.ownerIn(&o), Problems: []Problem{}, Handlers: []Handler{}, Categories: []Category{}, OpenJobs: o.Jobs,
	}
	if len(o.Owners) > 1 || len(o.Owners) == 1 && o.Owners[0].About != "" {
		for _, n := range o.Owners {
			s.Nodes = append(s.Nodes, Owner{PID: n.PID, Node: n.Node, Trouble: n.Trouble, Since: n.Since, About: AboutOf(n.About)})
		}
	}
	if live := d.opts.Live; live != nil && live.Members != nil {
		s.Members = live.Members()
	}
	s.OwnerWords = ownerWords(s.Owner)
	for i := range o.Handlers {
		h := d.handler(&o.Handlers[i])
		if err := d.passOverAll(ctx, &o, &o.Handlers[i], &h); err != nil {
			return Status{}, err
		}
		s.Handlers = append(s.Handlers, h)
	}
	for _, c := range o.Categories {
		s.Categories = append(s.Categories, Category{
			Name: c.Name, KeyField: c.KeyField, Buckets: c.Buckets, Commands: c.Commands, Partitions: c.Partitions, Records: c.Records,
			Lost: c.Lost, LostAt: c.LostAt,
		})
	}
	if s.Problems, err = d.problems(ctx, &s, o.Owners); err != nil {
		return Status{}, err
	}
	s.conclude()
	return s, nil
}

// conclude puts the problems into one word and one line.
func (s *Status) conclude() {
	grave := 0
	for _, p := range s.Problems {
		if !p.Note {
			grave++
		}
	}
	switch {
	case grave == 0:
		s.Words = "healthy: " + s.OwnerWords + ", nothing waits for a person"
	case grave == 1:
		s.Verdict, s.Words = Degraded, "degraded: "+s.Problems[0].Words
	default:
		s.Verdict = Degraded
		s.Words = "degraded: " + s.Problems[0].Words + ", and " + ofMany(grave-1, "more problem", "more problems")
	}
}

// Handlers gives all handlers and entity kinds in order of name.
func (d *Desk) Handlers(ctx context.Context) ([]Handler, error) {
	s, err := d.Status(ctx)
	return s.Handlers, err
}

// Handler gives one of them.
func (d *Desk) Handler(ctx context.Context, name string) (Handler, error) {
	s, err := d.Status(ctx)
	if err != nil {
		return Handler{}, err
	}
	var known []string
	for _, h := range s.Handlers {
		if h.Name == name {
			return h, nil
		}
		known = append(known, h.Name)
	}
	return Handler{}, d.orProjection(ctx, &NotFoundError{What: handlerOrKind, Name: name, Known: known, Empty: len(s.Handlers) == 0 && len(s.Categories) == 0})
}

const handlerOrKind = "handler or entity kind"

func (d *Desk) handler(h *eventstore.HandlerOverview) Handler {
	v := Handler{
		Name: h.Name, Kind: string(h.Kind), Categories: orNone(h.Categories), Types: orNone(h.Types), Sequential: h.Sequential, Since: h.Since,
		Running: h.Running, Lag: h.Lag, Moved: h.Moved, Halted: h.Halted, Parking: h.Parking, Paused: h.Paused, Dead: h.Dead, Trying: h.Trying,
		Oldest: h.Oldest, Pause: pauseOf(h.Pause),
	}
	v.Words = d.handlerWords(&v)
	return v
}

func (d *Desk) handlerWords(h *Handler) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if h.Pause != nil {
		add("paused for %s %s", d.since(h.Pause.Since), by(h.Pause.Actor, h.Pause.Reason))
	}
	if !h.Running {
		add("not in the program that started last")
	}
	switch {
	case h.Lag == 0:
		add("all applied")
		if h.PassedOver > 0 {
			add("%s", passedOver(h.PassedOver))
		}
	case h.Moved.IsZero():
		add("%d behind", h.Lag)
	default:
		add("%d behind, last moved %s ago", h.Lag, d.since(h.Moved))
	}
	for _, c := range []struct {
		n    int
		what string
	}{{h.Halted, "halted"}, {h.Parking, "with parked events"}, {h.Paused, "paused"}, {h.Trying, "trying again"}} {
		if c.n > 0 {
			add("%s %s", counted(c.n, "key", "keys"), c.what)
		}
	}
	if h.Dead > 0 {
		add("%s", counted(h.Dead, "dead letter", "dead letters"))
	}
	return strings.Join(parts, "; ")
}

func pauseOf(p *eventstore.Pause) *Pause {
	if p == nil {
		return nil
	}
	return &Pause{Handler: p.Unit.Name, Key: p.Unit.Key, Actor: p.Actor, Reason: p.Reason, Since: p.Since}
}

// orNone gives a slice that is [] in JSON, and not null.
func orNone(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}
