package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

func (s *setting) partitions() *cobra.Command {
	c := &cobra.Command{
		Use:     "partitions",
		Aliases: []string{"partition", "p"},
		Short:   "What is stopped, and the acts that set it going again",
		Long: `A partition is one order of events: those of a category with one key. A handler works on one event of a partition at a time, so an event
that cannot be applied stops its partition, and nothing else. These commands find such partitions and act on them. A partition of a
handler is named by two arguments, HANDLER KEY.`,
	}
	c.AddCommand(s.partitionsList(), s.partitionsShow(),
		s.partitionsAct(stoppedAct{
			verb: "retry", kind: eventstore.ActRetry, job: eventstore.JobRetry,
			short: "Try the event again at which partitions are stopped",
			long: `Retry has a halted partition try its event again, with all its attempts, or one with parked events apply those. It halts again if they
fail: mend the cause first.`,
		}),
		s.partitionsAct(stoppedAct{
			verb: "skip", kind: eventstore.ActSkip, job: eventstore.JobSkip, reason: true,
			short: "Pass the event at which partitions are stopped without applying it",
			long: `Skip passes the event at which a partition is halted, or drops the first of its parked events, and goes on with the next. The handler
never applies that event. To keep it for later, use dlq instead.`,
		}),
		s.partitionsAct(stoppedAct{
			verb: "dlq", kind: eventstore.ActDeadLetter, job: eventstore.JobDeadLetter, reason: true,
			short: "Set the event aside at which partitions are stopped, as a dead letter",
			long: `Dlq passes the event at which a partition is halted, or the first of its parked events, keeps it as a dead letter of the handler, and goes
on with the next. It can be replayed later, after events that came behind it.`,
		}),
		s.pausing("pause", eventstore.ActPause, false), s.pausing("resume", eventstore.ActResume, false))
	return c
}

func (s *setting) partitionsList() *cobra.Command {
	var w watching
	var q admin.PartitionQuery
	c := &cobra.Command{
		Use:     "ls [HANDLER]",
		Aliases: []string{"list"},
		Short:   "List the partitions of handlers",
		Args:    between(0, "HANDLER"),
		RunE: s.open(func(ctx context.Context, r *run, d *admin.Desk, args []string) error {
			if err := argument(args, &q.Handler, "handler"); err != nil {
				return err
			}
			return r.watch(ctx, w, func(ctx context.Context) (view, error) {
				page, err := d.Partitions(ctx, q)
				return partitionsView{page, q}, err
			})
		}),
	}
	f := c.Flags()
	f.StringVar(&q.Handler, "handler", "", "of this `HANDLER` or entity kind only")
	f.StringVar(&q.Category, "category", "", "of this `CATEGORY` only")
	f.StringVar(&q.Status, "status", "", "in this `STATE` only: halted, parking, trying, paused, behind or done")
	paging(c, &q.Limit, &q.Cursor)
	w.define(f)
	s.complete(c, s.handlers)
	s.completeFlag(c, "handler", s.handlers)
	s.completeFlag(c, "category", s.categories)
	fixed(c, "status", "halted", "parking", "trying", "paused", "behind", "done")
	return c
}

type partitionsView struct {
	admin.Page[admin.Partition]
	query admin.PartitionQuery
}

func (v partitionsView) draw(p *page) {
	if len(v.Items) == 0 && v.Next == "" {
		switch {
		case v.query.Status != "" && v.query.Status != "behind" && v.query.Status != "done":
			p.line(p.colours.dye(good, "No partition is "+clean(v.query.Status)+"."))
		case v.query != (admin.PartitionQuery{Limit: v.query.Limit}):
			p.line("No partition is like that.")
			p.hint("See all: " + p.typed + " partitions ls")
		default:
			p.line("There are no partitions yet: they come with the first event of each key.")
		}
		return
	}
	t := &table{columns: []column{
		{title: "HANDLER", give: true},
		{title: "KEY", give: true},
		{title: "CATEGORY", give: true},
		{title: "STATE"},
		{title: "FOR", right: true},
		{title: "BEHIND", right: true},
		{title: "APPLIED", right: true},
		{title: "WHY", give: true},
		{title: "SINCE", wide: true},
	}}
	for _, one := range v.Items {
		t.rows = append(t.rows, []cell{
			plain(one.Handler), plain(one.Key), plain(lane(one.Category, one.Backfill)), stateCell(one.Status), {text: p.ago(one.Since)},
			{text: dash(one.Lag)}, {text: fmt.Sprintf("%d/%d", one.Checkpoint, one.Tail)}, plain(one.Summary), {text: stamp(one.Since)},
		})
	}
	p.table(t)
	p.more(v.Next)
}

func (s *setting) partitionsShow() *cobra.Command {
	var w watching
	var opts admin.ShowOptions
	c := &cobra.Command{
		Use:   "show HANDLER KEY",
		Short: "Show one partition of a handler: where it is, what stopped it, what waits",
		Args:  exactly("HANDLER", "KEY"),
		RunE: s.open(func(ctx context.Context, r *run, d *admin.Desk, args []string) error {
			return r.watch(ctx, w, func(ctx context.Context) (view, error) {
				u, err := d.Unit(ctx, event.Unit{Name: args[0], Key: args[1]}, opts)
				return unitView{Unit: u, payload: opts.Payload}, err
			})
		}),
	}
	f := c.Flags()
	f.IntVar(&opts.Waiting, "waiting", 5, "show `N` of the events that wait, at most 100")
	f.BoolVar(&opts.Payload, "data", false, "show what the events hold")
	w.define(f)
	s.complete(c, s.handlers, s.keys)
	return c
}

// lane names a lane in a table.
func lane(category string, backfill bool) string {
	if backfill {
		return category + " (backfill)"
	}
	return category
}

func stateCell(state string) cell {
	c := plain(state)
	switch state {
	case "halted", "parking":
		c.paint = bad
	case "trying", "paused", "waiting":
		c.paint = wary
	case "done":
		c.paint = good
	}
	return c
}
