package command

import (
	"context"
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

func (s *setting) dead() *cobra.Command {
	c := &cobra.Command{
		Use:     "dlq",
		Aliases: []string{"dead-letters", "dead"},
		Short:   "Dead letters: events that a handler set aside and went on without",
		Long: `A dead letter is an event that one handler could not apply, set aside and went on without; other handlers are not concerned. Replay has that
handler apply it once more. A dead letter is named by HANDLER KEY SEQUENCE, as the list shows them.`,
	}
	c.AddCommand(s.deadList(), s.deadShow(), s.deadJob("replay", eventstore.JobReplay), s.deadJob("purge", eventstore.JobPurge))
	return c
}

func (s *setting) deadList() *cobra.Command {
	var w watching
	var q admin.DeadQuery
	var by selection
	var groups bool
	c := &cobra.Command{
		Use:     "ls [HANDLER]",
		Aliases: []string{"list"},
		Short:   "List dead letters, or count them by reason",
		Args:    between(0, "HANDLER"),
		RunE: s.open(func(ctx context.Context, r *run, d *admin.Desk, args []string) error {
			if err := argument(args, &q.Handler, "handler"); err != nil {
				return err
			}
			return r.watch(ctx, w, func(ctx context.Context) (view, error) {
				if groups {
					all, more, err := d.DeadGroups(ctx, q.Handler)
					return groupsView{Items: orEmpty(all), More: more}, err
				}
				q := q
				q.Filter = by.into(q.Filter, r.env.now())
				page, err := d.DeadLetters(ctx, q)
				return deadView{page, q}, err
			})
		}),
	}
	f := c.Flags()
	f.StringVar(&q.Handler, "handler", "", "of this `HANDLER` only")
	f.StringVar(&q.Key, "key", "", "with this `KEY` only")
	f.BoolVar(&groups, "groups", false, "count them by handler, reason and type instead")
	by.filters(c)
	paging(c, &q.Limit, &q.Cursor)
	w.define(f)
	s.complete(c, s.handlers)
	s.completeFlag(c, "handler", s.handlers)
	s.completeFlag(c, "type", s.types)
	s.completeFlag(c, "because", s.deadReasons)
	return c
}

type deadView struct {
	admin.Page[admin.DeadLetter]
	query admin.DeadQuery
}

func (v deadView) draw(p *page) {
	if len(v.Items) == 0 && v.Next == "" {
		if v.query.Filter == (admin.Filter{}) {
			p.line(p.colours.dye(good, "There are no dead letters."))
			return
		}
		p.line("No dead letter is like that.")
		p.hint("See all: " + p.typed + " dlq ls")
		return
	}
	drawDead(p, v.Items)
	p.more(v.Next)
}

func drawDead(p *page, all []admin.DeadLetter) {
	t := &table{columns: []column{
		{title: "HANDLER", give: true},
		{title: "KEY", give: true},
		{title: "SEQUENCE", right: true},
		{title: "CATEGORY", give: true},
		{title: "TYPE", give: true},
		{title: "FOR", right: true},
		{title: "TRIES", right: true},
		{title: "REASON", give: true},
		{title: "ERROR", give: true},
		{title: "SINCE", wide: true},
		{title: "EVENT", wide: true},
	}}
	for _, l := range all {
		t.rows = append(t.rows, []cell{
			plain(l.Handler), plain(l.Key), {text: plainCount(l.At.Sequence)}, plain(lane(l.At.Category, l.At.Backfill)), plain(l.Type), {text: p.ago(l.Since)},
			{text: strconv.Itoa(l.Attempts)}, plain(l.Reason), plain(l.Error), {text: stamp(l.Since)}, plain(l.At.EventID),
		})
	}
	p.table(t)
}

type groupsView struct {
	Items []admin.DeadGroup `json:"items"`
	More  bool              `json:"more,omitempty"` // not all were counted
}

func (v groupsView) draw(p *page) {
	if len(v.Items) == 0 {
		p.line(p.colours.dye(good, "There are no dead letters."))
		return
	}
	t := &table{columns: []column{
		{title: "HANDLER", give: true},
		{title: "REASON", give: true},
		{title: "TYPE", give: true},
		{title: "COUNT", right: true},
		{title: "OLDEST", right: true},
		{title: "NEWEST", right: true},
	}}
	for _, g := range v.Items {
		t.rows = append(t.rows, []cell{plain(g.Handler), plain(g.Reason), plain(g.Type), {text: count(g.Count)}, {text: p.ago(g.Oldest)}, {text: p.ago(g.Newest)}})
	}
	p.table(t)
	if v.More {
		p.hint("Of a handler with very many, only the first " + count(admin.MaxLimit) + " were counted.")
	}
}

func (s *setting) deadShow() *cobra.Command {
	var payload bool
	var category string
	c := &cobra.Command{
		Use:   "show HANDLER KEY SEQUENCE",
		Short: "Show one dead letter",
		Args:  exactly("HANDLER", "KEY", "SEQUENCE"),
		RunE: s.open(func(ctx context.Context, r *run, d *admin.Desk, args []string) error {
			letter, err := r.findDead(ctx, d, args, category, payload)
			if err != nil {
				return err
			}
			return r.show(letterView{letter, payload})
		}),
	}
	c.Flags().BoolVar(&payload, "data", false, "show what the event holds")
	c.Flags().StringVar(&category, "category", "", "`CATEGORY` of the event, where the handler reads several; name:backfill for the backfill lane")
	s.complete(c, s.handlers, s.deadKeys, s.deadSequences)
	s.completeFlag(c, "category", s.categories)
	return c
}

// findDead finds a dead letter by its unit and its sequence, in whichever lane of the handler it is. More than one is for the person to decide.
func (r *run) findDead(ctx context.Context, d *admin.Desk, args []string, category string, payload bool) (admin.DeadLetter, error) {
	sequence, err := strconv.ParseUint(args[2], 10, 64)
	if err != nil || sequence == 0 {
		return admin.DeadLetter{}, misused("Give the number in column SEQUENCE of dlq ls.", "%q is no sequence", args[2])
	}
	handler, err := d.Handler(ctx, args[0])
	if err != nil {
		return admin.DeadLetter{}, err
	}
	var found []admin.DeadLetter
	for _, name := range handler.Categories {
		for _, backfill := range []bool{false, true} {
			if category != "" && category != name && category != name+":backfill" || category == name && backfill || category == name+":backfill" && !backfill {
				continue
			}
			at := admin.Place{Category: name, Key: args[1], Backfill: backfill, Sequence: sequence}
			letter, err := d.DeadLetter(ctx, event.Unit{Name: args[0], Key: args[1]}, at, payload)
			if errors.Is(err, eventstore.ErrNotFound) {
				continue
			}
			if err != nil {
				return admin.DeadLetter{}, err
			}
			found = append(found, letter)
		}
	}
	switch len(found) {
	case 0:
		return admin.DeadLetter{}, missing("See which there are: "+r.advise("dlq ls", []string{"--key", args[1]}, args[0]), "%s has no dead letter of %s with sequence %d", args[0], args[1], sequence)
	case 1:
		return found[0], nil
	}
	return admin.DeadLetter{}, misused("Say which with --category, such as --category "+found[1].At.Category+laneFlag(found[1].At.Backfill),
		"%s has %d dead letters of %s with sequence %d", args[0], len(found), args[1], sequence)
}

type letterView struct {
	admin.DeadLetter
	payload bool
}

func (v letterView) draw(p *page) {
	p.line("dead letter of " + clean(v.Handler) + " " + clean(v.Key) + ": " + clean(v.At.String()))
	if v.Words != "" {
		p.line(clean(v.Words))
	}
	p.blank()
	var f fields
	f.add("type", v.Type)
	f.add("event id", v.At.EventID)
	f.add("set aside", p.when(v.Since))
	f.add("reason", v.Reason+" after "+amount(v.Attempts, "attempt"))
	f.add("error", v.Error)
	p.fields(f)
	if v.Event != nil {
		p.blank()
		drawEvent(p, *v.Event)
		if !v.payload {
			p.hint("What it holds is not shown: add --data.")
		}
	}
	p.blank()
	p.hint("Apply it once more: " + p.advise("dlq replay", v.Handler, v.Key, plainCount(v.At.Sequence)))
}

// deadJob makes replay and purge.
func (s *setting) deadJob(verb string, kind eventstore.JobKind) *cobra.Command {
	var sign signing
	var many selection
	var dryRun bool
	var category string
	c := &cobra.Command{
		Use:   verb + " HANDLER [KEY [SEQUENCE]]",
		Short: "Have the handler apply dead letters once more, and it alone",
		Long: `Replay has the handler apply dead letters once more; no other handler sees them. Those that fail again stay dead letters. The running
program does it, at --rate; the order of events that are through already cannot be restored.`,
		Example: "  keyhold dlq replay shipping client-17 5\n  keyhold dlq replay shipping --because \"retries exhausted\" --rate 10 --wait",
		Args:    between(1, "HANDLER", "KEY", "SEQUENCE"),
		RunE: s.open(func(ctx context.Context, r *run, d *admin.Desk, args []string) error {
			filter := admin.Filter{Handler: args[0]}
			if len(args) > 1 {
				filter.Key = args[1]
			}
			if len(args) > 2 {
				letter, err := r.findDead(ctx, d, args, category, false)
				if err != nil {
					return err
				}
				filter.EventID = letter.At.EventID
			}
			return r.start(ctx, d, many, admin.JobRequest{Kind: kind, Filter: filter, Actor: sign.actor, Reason: sign.reason}, dryRun)
		}),
	}
	if kind == eventstore.JobPurge {
		c.Short = "Forget dead letters for good"
		c.Long = `Purge forgets dead letters: their handler will never apply them. On a terminal it asks for the name of the handler; elsewhere give --yes.`
		c.Example = "  keyhold dlq purge shipping --before 720h --reason \"older than a month\" --dry-run"
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "tell what would be done, and do nothing")
	c.Flags().StringVar(&category, "category", "", "`CATEGORY` of the event with this sequence, where the handler reads several; name:backfill for the backfill lane")
	sign.define(c.Flags(), kind == eventstore.JobPurge)
	many.define(c, true)
	s.completeFlag(c, "because", s.deadReasons)
	s.complete(c, s.handlers, s.deadKeys, s.deadSequences)
	s.completeFlag(c, "type", s.types)
	return c
}

func laneFlag(backfill bool) string {
	if backfill {
		return ":backfill"
	}
	return ""
}
