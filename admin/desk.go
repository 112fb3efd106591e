package admin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Desk is where a person looks at a store and acts on it. All methods may be called concurrently, block on I/O, honour ctx, and change
// nothing but where they say so.
type Desk struct {
	store eventstore.Operations
	opts  Options
}

// Options are what a desk knows beside the store.
type Options struct {
	// Actor is who acts where a request does not say. Acts without either are refused.
	Actor string
	// Live is the application in this process that runs on the store; nil when there is none, and then what is done is taken up by
	// whatever program runs on it.
	Live *Live
	// Command is what the commands begin with that words name; default "keyhold".
	Command string
	// Now is the clock; default time.Now.
	Now func() time.Time
}

// Live is an application that runs on the desk's store, in this process.
type Live struct {
	Node string // its name in messages
	// Ready gives the error of every method while the application is not started. May be nil.
	Ready func() error
	// Consumes gives what keeps this process from applying events although it is started: a store or a broker that it does not reach. It must not block. May be nil.
	Consumes func() error
	// Notices gives what somebody should see to soon, although it keeps this process from nothing. It must not block. May be nil.
	Notices func() []string
	// Members gives the nodes that take part, as this process knows them, itself included; nil where it is alone. May be nil.
	Members func() []Member
	// Acted takes an act up at once. It must not block. Of the record, Kind and Unit or Job are set. May be nil.
	Acted func(eventstore.ActRecord)
	// Inspect tells what a unit is doing; nil for one that is at rest. May be nil.
	Inspect func(ctx context.Context, u event.Unit) (*Activity, error)
	// Projection tells how a build of a projection gets on; nil for one that does not run here. May be nil.
	Projection func(ctx context.Context, name string, build int) (*ProjectionFigures, error)
}

// New makes a desk. It does no I/O. The store must be started or attached before the desk is used.
func New(store eventstore.Operations, opts Options) *Desk {
	if opts.Command == "" {
		opts.Command = "keyhold"
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Desk{store: store, opts: opts}
}

// ready gives what keeps the desk from being used.
func (d *Desk) ready() error {
	if d.opts.Live != nil && d.opts.Live.Ready != nil {
		return d.opts.Live.Ready()
	}
	return nil
}

// begin gives what is wrong with a request, else what keeps the desk from being used.
func (d *Desk) begin(usage error) error {
	if usage != nil {
		return usage
	}
	return d.ready()
}

// checkNames gives an error for a name that the store does not know; "" is every name.
func (d *Desk) checkNames(ctx context.Context, handler, category string) error {
	if handler == "" && category == "" {
		return nil
	}
	r, err := d.store.LoadRegistry(ctx)
	if err != nil {
		return err
	}
	return d.orProjection(ctx, checkNames(r, handler, category))
}

// orProjection adds to an error about a name that it is that of a projection, where it is.
func (d *Desk) orProjection(ctx context.Context, err error) error {
	missing, ok := errors.AsType[*NotFoundError](err)
	if !ok || missing.Name == "" {
		return err
	}
	switch _, failed := d.store.ReadProjection(ctx, missing.Name); {
	case failed == nil:
		hinted := *missing
		hinted.Hint = "It is a projection: " + d.command("projections show", nil, missing.Name)
		return &hinted
	case !errors.Is(failed, eventstore.ErrNotFound):
		return failed
	}
	return err
}

func checkNames(r eventstore.Registered, handler, category string) error {
	if known := handlerNames(r); handler != "" && !slices.Contains(known, handler) {
		return &NotFoundError{What: handlerOrKind, Name: handler, Known: known, Empty: isEmpty(r)}
	}
	if known := categoryNames(r); category != "" && !slices.Contains(known, category) {
		return &NotFoundError{What: "category", Name: category, Known: known, Empty: isEmpty(r)}
	}
	return nil
}

func isEmpty(r eventstore.Registered) bool { return len(r.Handlers) == 0 && len(r.Categories) == 0 }

func handlerNames(r eventstore.Registered) (names []string) {
	for _, h := range r.Handlers {
		names = append(names, h.Name)
	}
	return names
}

func categoryNames(r eventstore.Registered) (names []string) {
	for _, c := range r.Categories {
		names = append(names, c.Name)
	}
	return names
}

// acted has the application in this process, if there is one, take an act up.
func (d *Desk) acted(r eventstore.ActRecord) {
	if d.opts.Live != nil && d.opts.Live.Acted != nil {
		d.opts.Live.Acted(r)
	}
}

// owner is who has the store open: this process where an application is live in it.
func (d *Desk) owner(ctx context.Context) (*Owner, error) {
	o, err := d.store.Overview(ctx)
	if err != nil {
		return nil, err
	}
	return d.ownerIn(&o), nil
}

func (d *Desk) ownerIn(o *eventstore.Overview) *Owner {
	others := max(len(o.Owners)-1, 0)
	if d.opts.Live != nil {
		return &Owner{PID: os.Getpid(), Node: d.opts.Live.Node, Others: others}
	}
	if o.Owner == nil {
		return nil
	}
	return &Owner{PID: o.Owner.PID, Node: o.Owner.Node, Others: others}
}

// runner is what runs handlers: who has the store open, and which handlers the program lacks that started last.
type runner struct {
	owner *Owner
	lacks map[string]bool
}

func (d *Desk) runner(ctx context.Context) (runner, error) {
	o, err := d.store.Overview(ctx)
	if err != nil {
		return runner{}, err
	}
	by := runner{owner: d.ownerIn(&o), lacks: map[string]bool{}}
	for i := range o.Handlers {
		by.lacks[o.Handlers[i].Name] = !o.Handlers[i].Running
	}
	return by, nil
}

// String is such as "process 4711 (orders@host)", or "process 4711 (orders@host) and 2 more".
func (o *Owner) String() string {
	s := fmt.Sprintf("process %d", o.PID)
	if o.Node != "" {
		s += fmt.Sprintf(" (%s)", o.Node)
	}
	if o.Others > 0 {
		s += fmt.Sprintf(" and %d more", o.Others)
	}
	return s
}

// nobody is said of a store without an owner.
const nobody = "nobody has the store open"

func ownerWords(o *Owner) string {
	if o == nil {
		return nobody
	}
	if o.Others > 0 {
		return o.String() + " have the store open"
	}
	return o.String() + " has the store open"
}
