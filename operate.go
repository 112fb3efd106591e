package keyhold

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/partitions"
)

// Unit names what can be halted: a handler and a key, or an entity kind and an id.
type Unit = event.Unit

// Halted tells at which event a unit is halted, since when and why.
type Halted = eventstore.Halt

// Admin gives the desk at which people see what the application is doing and act on it: list, explain, retry, skip, pause, replay, look
// up who did what. While the application is not started, everything done at it is [ErrNotStarted]. What is done without naming
// anybody is done in the name of Config.Node.
func (a *App) Admin() *admin.Desk {
	return admin.New(a.cfg.Store, admin.Options{Actor: a.cfg.Node, Live: &admin.Live{
		Node: a.cfg.Node,
		Ready: func() error {
			_, err := a.live()
			return err
		},
		Acted: func(done eventstore.ActRecord) {
			if r, err := a.live(); err == nil && r.acts.own(done.ID) {
				r.take(done)
			}
		},
		Consumes: a.consumes,
		Members:  a.members,
		Notices:  a.Notices,
		Inspect:  a.inspect,
		Projection: func(ctx context.Context, name string, build int) (*admin.ProjectionFigures, error) {
			r, err := a.live()
			if err != nil {
				return nil, err
			}
			return r.projectionFigures(ctx, name, build)
		},
	}})
}

var _ admin.Application = (*App)(nil)

// inspect tells what a unit is doing; nil for one that is at rest.
func (a *App) inspect(_ context.Context, u event.Unit) (*admin.Activity, error) {
	r, err := a.live()
	if err != nil {
		return nil, err
	}
	now, ok := r.runtime.Inspect(u)
	if !ok || now.Phase == partitions.PhaseIdle {
		return nil, nil
	}
	return activity(now), nil
}

func activity(now actors.Activity) *admin.Activity {
	v := &admin.Activity{State: now.Phase.String(), Since: now.Since, Asks: now.Asks}
	if h := now.InHand; h != nil {
		v.Type, v.Attempt = h.Type, h.Attempt
		if !h.Began.IsZero() {
			v.Since = h.Began
		}
		if h.Sequence > 0 {
			v.At = &admin.Place{
				Category: h.Lane.Category, Key: h.Lane.Key, Backfill: h.Lane.Lane == event.Backfill, Sequence: uint64(h.Sequence), EventID: h.EventID,
			}
		}
	}
	return v
}

// Halts gives up to limit (1 to 10,000) halted units in order of name and key, after the unit given: the zero Unit for the
// first page, the last one of a page for the next. name is that of a handler or entity kind; "" means all of them.
func (a *App) Halts(ctx context.Context, name string, after Unit, limit int) ([]Halted, error) {
	if _, err := a.live(); err != nil {
		return nil, err
	}
	return a.cfg.Store.ListHalts(ctx, name, after, limit)
}

// Halt gives the halt of one unit, nil when it is not halted. The name of neither a handler nor an entity kind is an error, and so is what nothing can be
// called, an [*event.IDError].
func (a *App) Halt(ctx context.Context, u Unit) (*Halted, error) {
	r, err := a.live()
	if err != nil {
		return nil, err
	}
	if err := eventstore.CheckUnit(u); err != nil {
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
	a.cfg.Logger.Warn("units are halted since before this start: mend the cause, then have them tried again",
		"halted", count, "first", strings.Join(first, ", "), "try", why(halts[0].Unit, halts[0].Lane.Category))
	return nil
}

// why is the command that explains what became of an event.
func why(u event.Unit, category string) string {
	return admin.CommandLine("keyhold", "why", nil, category, u.Key)
}

func quoted(names []string) string {
	all := make([]string, len(names))
	for i, n := range names {
		all[i] = strconv.Quote(n)
	}
	return strings.Join(all, ", ")
}
