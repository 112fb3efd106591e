package eventstore

import (
	"context"
	"time"

	"github.com/keyhold/keyhold/event"
)

// Registry keeps what the application declared, so that the next start can be compared with it and tools can show
// events without the application's binary.
type Registry interface {
	// LoadRegistry gives everything that was saved, in order of name, types of one name in order of version.
	LoadRegistry(ctx context.Context) (Registered, error)
	// Revision gives what LoadRegistry gives as Registered.Revision, for little.
	Revision(ctx context.Context) (uint64, error)
	// SaveRegistry replaces categories and handlers by name and types by name and version (those not named stay as they
	// are) and sets the starting checkpoints of new subscriptions, in one transaction. It is compare-and-set by
	// Registered.Revision, 0 before the first save: [*RegistryError] when somebody saved since. Where records are relayed, every lane of a category that is new to a
	// handler, and has something above its starting checkpoint, is due to be looked at ([Relays].DueLooks); of a handler of another store that is every lane that has anything.
	SaveRegistry(ctx context.Context, r Registered, starts []Start) error
	// FirstBroker notes by which memory of a broker units of this store are leased from now on, if by any for the first time, and gives the one that was noted first.
	// As long as that one lasts no lease can have been forgotten; see transport.Broker.
	FirstBroker(ctx context.Context, memory string) (first string, err error)
	// CategoryHasEvents reports whether a category has any record, voids included. One of which all were purged has none.
	CategoryHasEvents(ctx context.Context, category string) (bool, error)
}

// Registered is the content of the registry.
type Registered struct {
	Revision   uint64 // grows at every save
	Categories []Category
	Handlers   []Handler
	Types      []Type
}

// Category is the durable descriptor of a category.
type Category struct {
	Name     string
	KeyField string // "" = none: events go into Buckets
	Buckets  int    // 0 with a key field
	Commands bool   // a category of commands
	StoreID  string // of the store that produces it
}

// Handler is a registered subscriber.
type Handler struct {
	Name       string
	Kind       HandlerKind
	Categories []string
	Types      []string // wire names it handles; lists only grow
	Sequential bool
	Since      time.Time
	Seen       event.Generation // start generation in which it was saved last; SaveRegistry sets it, whatever is given
	// StoreID is of the store that keeps its checkpoints when that is another one: a handler of another application that reads a category
	// of this one. "" = this store. Another store's has no lag, no partitions and no hold on a purge here, and is never running or in use here.
	StoreID string
	// Begins tells, for categories that another application produces, from when on the handler begins in a lane in which it has no place yet and whose
	// first events are not there any more; a zero time = with the first that its producer keeps. nil where it has no such category.
	Begins map[string]time.Time
}

// HandlerKind tells handlers, entity kinds and process managers apart.
type HandlerKind string

const (
	EventHandler   HandlerKind = "handler"
	EntityKind     HandlerKind = "entity"
	CommandHandler HandlerKind = "command handler"
	ProcessManager HandlerKind = "process manager"
)

// Type describes a type of events, commands or replies.
type Type struct {
	Name     string // wire name
	Version  int
	Encoding event.Encoding
	Category string // "" for replies
	Fields   []Field
	// Descriptor is a serialized google.protobuf.FileDescriptorSet for protobuf types; nil for plain structs.
	Descriptor []byte
}

// Field is a direct field of a type, by its wire name.
type Field struct {
	Name string
	Kind string // "string", "int64", "uuid", "bool", "object", ...
}

// Start sets where a subscription begins: for every lane that the category has now, a checkpoint, unless the handler has
// one there already. Lanes made later begin at 0.
type Start struct {
	Handler  string
	Category string
	// Now puts each checkpoint at the lane's last sequence; else each goes just before the lane's first record at or after
	// From, voids included, or at the last sequence where there is no such record. So a zero From begins with the first
	// record kept of each lane, and at the end of a lane of which none is.
	Now  bool
	From time.Time
	// Foreign: another application produces the category, so nothing is known of its lanes here. Places are where the handler begins in those that are named,
	// unless it has a checkpoint there already; Now and From say nothing.
	Foreign bool
	Places  []event.Position
}
