package admin

import (
	"context"
	"time"
)

// Verdict says in one word how a store stands.
type Verdict string

const (
	Healthy  Verdict = "healthy"
	Degraded Verdict = "degraded" // something waits for a person, or nobody works on what is there to do
)

// Status is how a store stands.
type Status struct {
	At         time.Time  `json:"at"`
	Verdict    Verdict    `json:"verdict"`
	Words      string     `json:"words"` // one line: "degraded: 2 keys of shipping are halted, the oldest for 4 m, and 1 more problem"
	StoreID    string     `json:"store_id"`
	Generation uint64     `json:"generation"` // of the start that owns the store, or did last
	Owner      *Owner     `json:"owner,omitempty"`
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
}

// ProblemKind tells problems apart.
type ProblemKind string

// The kinds of problems, the worst first. Notes are listed behind them, and do not make a store degraded.
const (
	ProblemNobody  ProblemKind = "nobody"  // nobody has the store open, and there is work
	ProblemHalted  ProblemKind = "halted"  // units of a handler wait for a person
	ProblemParking ProblemKind = "parking" // units of a handler set events aside
	ProblemTrying  ProblemKind = "trying"  // units of a handler whose next event failed, and is tried again
	ProblemPaused  ProblemKind = "paused"  // a handler, or units of it, were paused by a person
	ProblemDead    ProblemKind = "dead"    // dead letters
	ProblemAbsent  ProblemKind = "absent"  // a handler has work, and the running program does not have it
	ProblemUnclean ProblemKind = "unclean" // a note: the last program did not stop by itself
)

// Problem is one thing that is wrong.
type Problem struct {
	Kind    ProblemKind `json:"kind"`
	Handler string      `json:"handler,omitempty"`
	Count   int         `json:"count,omitempty"`
	AtLeast bool        `json:"at_least,omitempty"` // there may be more than Count
	Oldest  time.Time   `json:"oldest,omitzero"`
	Words   string      `json:"words"`             // "2 keys of shipping are halted, the oldest for 4 m"
	Command string      `json:"command,omitempty"` // that shows more: "keyhold partitions ls --handler shipping --status halted"
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
	Lag        uint64    `json:"lag"`     // events that it has not passed
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
func (d *Desk) Status(ctx context.Context) (Status, error) { return Status{}, errUnbuilt }

// Handlers gives all handlers and entity kinds in order of name.
func (d *Desk) Handlers(ctx context.Context) ([]Handler, error) { return nil, errUnbuilt }

// Handler gives one of them.
func (d *Desk) Handler(ctx context.Context, name string) (Handler, error) {
	return Handler{}, errUnbuilt
}
