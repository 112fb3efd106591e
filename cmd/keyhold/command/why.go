package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keyhold/keyhold/admin"
)

func (s *setting) why() *cobra.Command {
	var w watching
	var q admin.WhyQuery
	c := &cobra.Command{
		Use:   "why CATEGORY KEY",
		Short: "Explain what becomes of the events of a key: where they are, what stops them, what to do",
		Long: `Why explains what becomes of the events of one key, for each handler that reads them: how far it is, what stopped it, what waits behind that,
and what to do now. Instead of a category it takes the name of a handler or entity kind, too.`,
		Example: "  keyhold why order client-17\n  keyhold why order client-17 --handler shipping",
		Args:    exactly("CATEGORY", "KEY"),
		RunE: s.open(func(ctx context.Context, r *run, d *admin.Desk, args []string) error {
			q.Category, q.Key = args[0], args[1]
			return r.watch(ctx, w, func(ctx context.Context) (view, error) {
				explanation, err := d.Why(ctx, q)
				return whyView{explanation}, err
			})
		}),
	}
	c.Flags().StringVar(&q.Handler, "handler", "", "of this `HANDLER` only")
	w.define(c.Flags())
	s.complete(c, s.categoriesAndHandlers, s.keys)
	s.completeFlag(c, "handler", s.handlers)
	return c
}

type whyView struct{ admin.Explanation }

func (v whyView) draw(p *page) {
	if len(v.Units) != 1 { // else its lines say the same
		p.line(clean(v.Words))
	}
	p.line(p.colours.dye(faint, clean(v.OwnerWords)))
	for _, u := range v.Units {
		state := stateCell(u.State)
		p.blank()
		p.line(clean(u.Handler) + " " + clean(u.Key) + ": " + p.colours.dye(state.paint, state.text))
		for _, because := range u.Because {
			p.line("  " + clean(because))
		}
		if u.Behind != "" {
			p.line("  " + clean(u.Behind))
		}
		if len(u.Next) > 0 {
			p.line("  What to do:")
		}
		drawSteps(p, u.Next)
	}
	for _, one := range v.Divergences {
		p.blank()
		p.line(p.colours.dye(bad, clean(one.Words)))
		drawSteps(p, one.Next)
	}
	for _, one := range v.Projections {
		p.blank()
		p.line(p.colours.dye(paintOf(one.State), clean(one.Words)))
		drawSteps(p, []admin.Step{one.Next})
	}
}

func drawSteps(p *page, all []admin.Step) {
	for _, step := range all {
		if step.Command == "" {
			p.line("    " + clean(step.Words))
			continue
		}
		p.line("    " + clean(step.Command))
		p.hint("        " + clean(step.Words))
	}
}
