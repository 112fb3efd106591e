package keyhold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Unit names what can be halted: a handler and a key, or an entity kind and an id.
type Unit = event.Unit

// Halted tells at which event a unit is halted, since when and why.
type Halted = eventstore.Halt

var _ admin.Operator = (*App)(nil)

// Halts gives up to limit (1 to 10,000) halted units in order of name and key, after the unit given: the zero Unit for the
// first page, the last one of a page for the next. name is that of a handler or entity kind; "" means all of them.
func (a *App) Halts(ctx context.Context, name string, after Unit, limit int) ([]Halted, error) {
	if _, err := a.live(); err != nil {
		return nil, err
	}
	return a.cfg.Store.ListHalts(ctx, name, after, limit)
}

// Halt gives the halt of one unit, nil when it is not halted. The name of neither a handler nor an entity kind is an error.
func (a *App) Halt(ctx context.Context, u Unit) (*Halted, error) {
	r, err := a.live()
	if err != nil {
		return nil, err
	}
	known, err := a.cfg.Store.Recover(ctx, []eventstore.Ask{{Unit: u}})
	if err != nil {
		return nil, err
	}
	if known[0].Halt == nil && !slices.Contains(r.names, u.Name) {
		return nil, fmt.Errorf("no handler or entity kind is called %q (known: %s)", u.Name, quoted(r.names))
	}
	return known[0].Halt, nil
}

// LiftHalt ends exactly this halt, named by its Ref, and has its unit go on: the event that halted it is tried again, with all
// its attempts. A halt that is not there (any more) is an [*eventstore.HaltMovedError]. After
// an [eventstore.ErrUnknownCommit] it may be lifted, and then the unit goes on. To lift whatever halt a unit has, use
// [admin.Resume].
func (a *App) LiftHalt(ctx context.Context, halt eventstore.HaltRef) error {
	r, err := a.live()
	if err != nil {
		return err
	}
	if _, err := a.cfg.Store.Begin("lift halt").Commit(ctx, eventstore.Changes{LiftHalt: &halt}); err != nil {
		moved, ok := errors.AsType[*eventstore.HaltMovedError](err)
		switch {
		case errors.Is(err, eventstore.ErrUnknownCommit):
			r.runtime.Resume(halt.Unit)
			return fmt.Errorf("lift halt of %s: it may be lifted, look whether it is: %w", halt.Unit, err)
		case ok && moved.Now == nil: // lifted by one who did not get to tell the unit, perhaps
			r.runtime.Resume(halt.Unit)
		}
		return err
	}
	a.cfg.Logger.Info("halt lifted: the event is tried again", "unit", halt.Unit, "lane", halt.Lane, "sequence", halt.Sequence)
	r.runtime.Resume(halt.Unit)
	return nil
}

// reportHalts logs which units are halted when the application starts: nothing else will tell of them.
func (a *App) reportHalts(ctx context.Context) error {
	const most, named = 10_000, 3
	halts, err := a.cfg.Store.ListHalts(ctx, "", Unit{}, most)
	if err != nil {
		return fmt.Errorf("look for halts: %w", err)
	}
	if len(halts) == 0 {
		return nil
	}
	var first []string
	for _, h := range halts[:min(named, len(halts))] {
		first = append(first, h.Unit.String())
	}
	count := strconv.Itoa(len(halts))
	if len(halts) == most {
		count += " or more"
	}
	a.cfg.Logger.Warn("units are halted since before this start: mend the cause, then lift each with admin.Resume",
		"halted", count, "first", strings.Join(first, ", "))
	return nil
}

func quoted(names []string) string {
	all := make([]string, len(names))
	for i, n := range names {
		all[i] = strconv.Quote(n)
	}
	return strings.Join(all, ", ")
}
