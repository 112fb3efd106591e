package command

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/eventstore"
)

func (s *setting) status() *cobra.Command {
	var w watching
	c := &cobra.Command{
		Use:   "status",
		Short: "How the store stands: what is wrong, and how far every handler is",
		Long: `Status tells how the store stands: what is wrong, the worst first, with the command that shows more of it; then how far every handler is.
In scripts the exit code tells: 0 when all is well, 5 when something waits for a person, or when nobody works on what is there to do.`,
		Args: exactly(),
		RunE: s.open(func(ctx context.Context, r *run, d *admin.Desk, _ []string) error {
			degraded := false
			err := r.watch(ctx, w, func(ctx context.Context) (view, error) {
				status, err := d.Status(ctx)
				degraded = status.Verdict != admin.Healthy
				if err != nil {
					return nil, err
				}
				projections, err := d.Projections(ctx)
				return statusView{status, orEmpty(projections)}, err
			})
			if err == nil && degraded && !w.on {
				return errDegraded
			}
			return err
		}),
	}
	w.define(c.Flags())
	return c
}

type statusView struct {
	admin.Status
	Projections []admin.Projection `json:"projections"`
}

func (v statusView) timeless() any {
	s := v.Status
	s.At, s.Words = time.Time{}, ""
	s.Problems = slices.Clone(s.Problems)
	for i := range s.Problems {
		s.Problems[i].Words = ""
	}
	s.Handlers = slices.Clone(s.Handlers)
	for i := range s.Handlers {
		s.Handlers[i].Words = ""
	}
	return []any{s, projectionsView{v.Projections}.timeless()}
}

func (v statusView) draw(p *page) {
	as := good
	if v.Verdict != admin.Healthy {
		as = bad
	}
	p.line(p.colours.dye(as, clean(v.Words)))
	about := "store " + clean(v.StoreID) + prefix(", start ", dash(v.Generation))
	if !strings.Contains(v.Words, v.OwnerWords) {
		about = clean(v.OwnerWords) + "; " + about
	}
	p.line(p.colours.dye(faint, about))
	if slices.ContainsFunc(v.Nodes, func(o admin.Owner) bool { return o.About != nil }) {
		p.blank()
		drawNodes(p, v.Nodes)
	} else if len(v.Nodes) > 0 {
		names := make([]string, len(v.Nodes))
		for i := range v.Nodes {
			names[i] = clean(v.Nodes[i].String())
		}
		p.line(p.colours.dye(faint, "nodes: "+strings.Join(names, ", ")))
	}
	for _, problem := range v.Problems {
		if problem.Note && problem.Words == v.OwnerWords {
			continue // said above
		}
		p.blank()
		mark := p.colours.dye(gravity(problem.Kind), "! ")
		if problem.Note {
			mark = p.colours.dye(faint, "- ")
		}
		p.line(mark + clean(problem.Words))
		if problem.Command != "" && len(problem.Steps) == 0 {
			p.hint("    " + clean(problem.Command))
		}
		drawSteps(p, problem.Steps)
	}
	if v.OpenJobs > 0 {
		p.blank()
		p.line(amount(v.OpenJobs, "job") + " not over yet")
		p.hint("    " + p.typed + " jobs ls --open")
	}
	p.blank()
	drawHandlers(p, v.Handlers)
	if len(v.Projections) > 0 {
		p.blank()
		drawProjections(p, v.Projections, false)
	}
	if len(v.Categories) > 0 {
		p.blank()
		drawCategories(p, v.Categories)
	}
}

// drawNodes shows what each says of itself. One that says nothing runs an older program, or has just begun.
func drawNodes(p *page, all []admin.Owner) {
	t := &table{columns: []column{
		{title: "NODE", give: true},
		{title: "PROCESS", right: true},
		{title: "STATE"},
		{title: "UNITS", right: true},
		{title: "ADDRESS"},
		{title: "VERSION", give: true},
		{title: "UP"},
		{title: "ID", give: true},
		{title: "GOSSIP", wide: true},
		{title: "KEYS", right: true, wide: true},
		{title: "SEALS", wide: true},
	}}
	for i := range all {
		o := &all[i]
		a := o.About
		if a == nil {
			t.rows = append(t.rows, []cell{plain(o.Node), {text: plainCount(o.PID)}, {}, {}, {}, {}, {}, {}, {}, {}, {}})
			continue
		}
		state := cell{text: a.State()}
		if a.Draining || a.Apart {
			state = cell{a.State() + prefix(" for ", p.ago(a.Since)), wary}
		}
		if o.Trouble != "" {
			state = cell{"in trouble" + prefix(" for ", p.ago(o.Since)), bad}
		}
		t.rows = append(t.rows, []cell{
			plain(o.Node), {text: plainCount(o.PID)}, state, {text: count(a.Units)}, plain(a.Address), plain(a.Version), {text: p.ago(a.Up)}, plain(a.ID),
			plain(a.Gossip), {text: dash(uint64(a.Keys))}, plain(a.Seals),
		})
	}
	p.table(t)
}

func gravity(kind admin.ProblemKind) paint {
	switch kind {
	case admin.ProblemApart, admin.ProblemDiverged, admin.ProblemNobody, admin.ProblemHalted, admin.ProblemParking, admin.ProblemAbsent:
		return bad
	}
	return wary
}

func drawHandlers(p *page, all []admin.Handler) {
	if len(all) == 0 {
		p.line("No handlers are registered in this store yet: an application registers its handlers when it starts.")
		return
	}
	t := &table{columns: []column{
		{title: "HANDLER", give: true},
		{title: "KIND"},
		{title: "BEHIND", right: true},
		{title: "TRYING", right: true},
		{title: "HALTED", right: true},
		{title: "PARKING", right: true},
		{title: "PAUSED", right: true},
		{title: "DEAD", right: true},
		{title: "MOVED"},
		{title: "STOPPED FOR"},
		{title: "IN PROGRAM", wide: true},
		{title: "READS", wide: true},
		{title: "SINCE", wide: true},
	}}
	for _, h := range all {
		paused := tally(h.Paused, wary)
		if h.Pause != nil {
			paused = cell{"all", wary}
		}
		in := plain("yes")
		if !h.Running {
			in = cell{"no", wary}
		}
		t.rows = append(t.rows, []cell{
			plain(h.Name), plain(h.Kind), {text: dash(h.Lag)}, tally(h.Trying, wary), tally(h.Halted, bad), tally(h.Parking, bad), paused,
			tally(h.Dead, wary), {text: suffix(p.ago(h.Moved), " ago")}, {text: p.ago(h.Oldest)},
			in, plain(list(h.Categories)), {text: stamp(h.Since)},
		})
	}
	p.table(t)
}

func drawCategories(p *page, all []admin.Category) {
	t := &table{columns: []column{
		{title: "CATEGORY", give: true},
		{title: "KEY", give: true},
		{title: "PARTITIONS", right: true},
		{title: "EVENTS", right: true},
		{title: "HOLDS", wide: true},
	}}
	lost := slices.ContainsFunc(all, func(c admin.Category) bool { return c.Lost > 0 })
	if lost {
		t.columns = append(t.columns, column{title: "LOST BEFORE TAKEN IN"})
	}
	for _, c := range all {
		key, holds := plain(c.KeyField), "events"
		if c.KeyField == "" && c.Buckets > 0 {
			key = cell{text: "none, " + amount(c.Buckets, "bucket")}
		}
		if c.Commands {
			holds = "commands"
			if c.KeyField == "" && c.Buckets == 0 {
				key = cell{text: "entity id"}
			}
		}
		t.rows = append(t.rows, []cell{plain(c.Name), key, {text: count(c.Partitions)}, {text: count(c.Records)}, {text: holds}})
		if last := len(t.rows) - 1; c.Lost > 0 {
			t.rows[last] = append(t.rows[last], cell{count(c.Lost) + ", the last found " + suffix(p.ago(c.LostAt), " ago"), wary})
		} else if lost {
			t.rows[last] = append(t.rows[last], cell{})
		}
	}
	p.table(t)
}

// tally is a count that stands out when it is not 0; counts of a store end at eventstore.MaxCount.
func tally(n int, as paint) cell {
	switch {
	case n == 0:
		return cell{}
	case n >= eventstore.MaxCount:
		return cell{count(n) + "+", as}
	}
	return cell{count(n), as}
}
