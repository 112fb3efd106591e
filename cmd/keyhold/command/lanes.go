package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keyhold/keyhold/admin"
)

func (s *setting) lanes() *cobra.Command {
	c := &cobra.Command{
		Use:     "lanes",
		Aliases: []string{"lane"},
		Short:   "Where store and broker tell different histories, and the act that ends it",
		Long: `Where nodes share a broker, each key of a category has a lane there: its events in order. When the store goes back in time (a backup that was
restored, a failover to a standby that lacked the last commits) the broker may have events that the store has not. Such a lane has diverged:
nothing of it is published until a person decides, for the two histories would be mixed without a word. Other lanes go on.`,
	}
	c.AddCommand(s.lanesList(), s.lanesAdopt())
	return c
}

func (s *setting) lanesList() *cobra.Command {
	var w watching
	var q admin.DivergenceQuery
	c := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the lanes that diverged",
		Args:    exactly(),
		RunE: s.open(func(ctx context.Context, r *run, d *admin.Desk, _ []string) error {
			return r.watch(ctx, w, func(ctx context.Context) (view, error) {
				page, err := d.Divergences(ctx, q)
				return lanesView{page}, err
			})
		}),
	}
	paging(c, &q.Limit, &q.Cursor)
	w.define(c.Flags())
	return c
}

type lanesView struct{ admin.Page[admin.Divergence] }

func (v lanesView) timeless() any {
	out := admin.Page[admin.Divergence]{Next: v.Next}
	for _, one := range v.Items {
		one.Words = ""
		out.Items = append(out.Items, one)
	}
	return out
}

func (v lanesView) draw(p *page) {
	if len(v.Items) == 0 && v.Next == "" {
		p.line(p.colours.dye(good, "No lane diverged: store and broker agree, as far as is known."))
		return
	}
	t := &table{columns: []column{
		{title: "CATEGORY", give: true},
		{title: "KEY", give: true},
		{title: "AT", right: true},
		{title: "BROKER HAS", give: true},
		{title: "STORE HAS", give: true},
		{title: "FOR", right: true},
		{title: "SINCE", wide: true},
	}}
	for _, one := range v.Items {
		t.rows = append(t.rows, []cell{
			plain(lane(one.At.Category, one.At.Backfill)), plain(one.At.Key), {text: count(one.At.Sequence), paint: bad}, plain(one.At.EventID), plain(one.Stored),
			{text: p.ago(one.Since)}, {text: stamp(one.Since)},
		})
	}
	p.table(t)
	p.more(v.Next)
	if len(v.Items) > 0 {
		p.line("What to do:")
		drawSteps(p, v.Items[0].Next)
	}
}

func (s *setting) lanesAdopt() *cobra.Command {
	var sign signing
	var expect uint64
	var dryRun, yes bool
	var request admin.AdoptRequest
	c := &cobra.Command{
		Use:   "adopt CATEGORY KEY",
		Short: "Keep what the broker has of a lane that diverged, and publish the store's own events behind it",
		Long: `Adopt ends the divergence of one lane: what the broker has stays where it is, the store's own events above what both have in common get sequences
above that, and voids take the place of what the broker has alone. No handler meets a gap, and none applies an event twice but for those that were
published before the loss and of which the store has lost the note. Where the commits that were lost can be had back, restore those instead.`,
		Example: "  keyhold lanes adopt order client-17 --expect 5 --reason \"restored from the backup of monday\"",
		Args:    exactly("CATEGORY", "KEY"),
		RunE: s.open(func(ctx context.Context, r *run, d *admin.Desk, args []string) error {
			request.Category, request.Key = args[0], args[1]
			request.Actor, request.Reason = sign.actor, sign.reason
			if expect > 0 {
				request.Expect = &admin.Expect{Place: admin.Place{Category: args[0], Key: args[1], Backfill: request.Backfill, Sequence: expect}}
			}
			return r.adopt(ctx, d, request, dryRun, yes)
		}),
	}
	f := c.Flags()
	f.BoolVar(&request.Backfill, "backfill", false, "the backfill lane of the key")
	f.Uint64Var(&expect, "expect", 0, "`SEQUENCE` of the broker's event that you saw it diverge at; refused when it is another by now")
	f.BoolVar(&dryRun, "dry-run", false, "tell what would be done, and do nothing")
	f.BoolVarP(&yes, "yes", "y", false, "do not ask; required where no terminal is")
	sign.define(f, true)
	s.complete(c, s.divergedCategories, s.divergedKeys)
	return c
}

func (r *run) adopt(ctx context.Context, d *admin.Desk, request admin.AdoptRequest, dryRun, yes bool) error {
	preview, err := d.PreviewAdopt(ctx, request)
	if err != nil {
		return err
	}
	if dryRun {
		return r.show(previewView{preview})
	}
	if err := r.confirm(confirmation{view: previewView{preview}, yes: yes, word: request.Key}); err != nil {
		return err
	}
	request.Expect = preview.Expect // what was shown
	done, err := d.Adopt(ctx, request)
	if err != nil {
		return err
	}
	return r.show(adoptedView{done})
}

type adoptedView struct{ admin.ActResult }

func (v adoptedView) draw(p *page) {
	what := ""
	if v.At != nil {
		what = " " + lane(v.At.Category, v.At.Backfill) + " " + v.At.Key
	}
	p.line(p.colours.dye(good, "done: ") + "adopt" + clean(what) + prefix(": ", clean(v.Detail)))
	drawWarnings(p, v.Warnings)
	p.line("Taken up " + clean(v.TakenUp) + ".")
	p.hint("Act " + plainCount(uint64(v.ID)) + " in the record, by " + clean(v.Actor) + prefix(": ", clean(v.Reason)))
}

func (s *setting) divergedCategories(ctx context.Context, d *admin.Desk, _ []string) ([]string, error) {
	all, err := d.Divergences(ctx, admin.DivergenceQuery{Limit: admin.MaxLimit})
	var found []string
	for _, one := range all.Items {
		found = append(found, described(one.At.Category))
	}
	return distinct(found), err
}

func (s *setting) divergedKeys(ctx context.Context, d *admin.Desk, before []string) ([]string, error) {
	all, err := d.Divergences(ctx, admin.DivergenceQuery{Limit: admin.MaxLimit})
	var found []string
	for _, one := range all.Items {
		if one.At.Category == before[0] {
			found = append(found, described(one.At.Key, one.Words))
		}
	}
	return distinct(found), err
}
