package command

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/eventstore"
)

func (s *setting) projectionsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "projections",
		Aliases: []string{"projection"},
		Short:   "Read models: how far they are, pause, retry, skip, rebuild",
		Long: `A projection is given all events of its categories in one order and keeps tables. A rebuild fills other tables from the first event on, while readers
go on to see those there are; when it has caught up, they see the new ones.`,
	}
	c.AddCommand(s.projectionsList(), s.projectionsShow(),
		s.projectionAct(projectionVerb{verb: "pause", kind: eventstore.ActPause, short: "Have a projection apply nothing until it is resumed"}),
		s.projectionAct(projectionVerb{verb: "resume", kind: eventstore.ActResume, short: "Have a paused projection go on"}),
		s.projectionAct(projectionVerb{verb: "retry", kind: eventstore.ActRetry, stopped: true, short: "Have a halted projection try its event again, with all its attempts"}),
		s.projectionAct(projectionVerb{verb: "skip", kind: eventstore.ActSkip, stopped: true, reason: true, short: "Have a halted projection pass its event without applying it",
			long: "Skip passes the event in the build that is halted, and in no other: a rebuild meets it again."}),
		s.projectionAct(projectionVerb{verb: "rebuild", kind: eventstore.ActRebuild, short: "Build a projection anew beside the present one, then have readers see the new one",
			long: `Rebuild applies every event from the first on to new tables, while readers go on to see the present ones. It meets an event again that was
skipped in the present build, and halts at it if it still cannot be applied: mend the cause first, or skip it there, too.`}),
		s.projectionAct(projectionVerb{verb: "cancel", kind: eventstore.ActCancelRebuild, short: "Give a rebuild up, its tables included"}),
		s.projectionAct(projectionVerb{verb: "drop", kind: eventstore.ActDropBuild, grave: true, short: "Drop the tables of builds that readers do not see any more"}),
		s.projectionAct(projectionVerb{verb: "rm", kind: eventstore.ActRemove, reason: true, grave: true,
			short: "Forget a projection that the program does not have any more, and drop its tables"}),
	)
	return c
}

func (s *setting) projectionsList() *cobra.Command {
	var w watching
	c := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List projections, and how far they are",
		Args:    exactly(),
		RunE: s.open(func(ctx context.Context, r *run, d *admin.Desk, _ []string) error {
			return r.watch(ctx, w, func(ctx context.Context) (view, error) {
				all, err := d.Projections(ctx)
				return projectionsView{orEmpty(all)}, err
			})
		}),
	}
	w.define(c.Flags())
	return c
}

func (s *setting) projectionsShow() *cobra.Command {
	var w watching
	c := &cobra.Command{
		Use:   "show NAME",
		Short: "Show a projection and its builds",
		Args:  exactly("NAME"),
		RunE: s.open(func(ctx context.Context, r *run, d *admin.Desk, args []string) error {
			return r.watch(ctx, w, func(ctx context.Context) (view, error) {
				p, err := d.Projection(ctx, args[0])
				return projectionView{p}, err
			})
		}),
	}
	w.define(c.Flags())
	s.complete(c, s.projections)
	return c
}

// projectionVerb is what is done to a projection.
type projectionVerb struct {
	verb, short string
	long        string
	kind        eventstore.ActKind
	stopped     bool // at an event
	reason      bool // required
	grave       bool // it cannot be taken back
}

func (s *setting) projectionAct(v projectionVerb) *cobra.Command {
	var sign signing
	var build int
	var expect string
	var yes bool
	c := &cobra.Command{
		Use:   v.verb + " NAME",
		Short: v.short,
		Long:  v.long,
		Args:  exactly("NAME"),
		RunE: s.open(func(ctx context.Context, r *run, d *admin.Desk, args []string) error {
			request := admin.ProjectionRequest{Kind: v.kind, Name: args[0], Build: build, Actor: sign.actor, Reason: sign.reason}
			if r.command.Flags().Changed("expect") {
				request.Event = &expect
			}
			if v.grave {
				now, err := d.Projection(ctx, args[0])
				if err != nil {
					return err
				}
				if err := r.confirm(confirmation{view: projectionView{now}, yes: yes, word: args[0]}); err != nil {
					return err
				}
			}
			done, err := d.ActOnProjection(ctx, request)
			if err != nil {
				return err
			}
			return r.show(doneView{done})
		}),
	}
	f := c.Flags()
	if v.stopped {
		f.IntVar(&build, "build", 0, "`NUMBER` of the build that is halted, where two are")
		f.StringVar(&expect, "expect", "", "`ID` of the event that you saw it halted at; refused when it is at another by now")
	}
	if v.grave {
		f.BoolVarP(&yes, "yes", "y", false, "do not ask; required where no terminal is")
	}
	sign.define(f, v.reason)
	s.complete(c, s.projections)
	return c
}

func (s *setting) projections(ctx context.Context, d *admin.Desk, _ []string) ([]cobra.Completion, error) {
	all, err := d.Projections(ctx)
	var found []cobra.Completion
	for _, p := range all {
		found = append(found, described(p.Name, p.State, p.Words))
	}
	return found, err
}

type projectionsView struct {
	Items []admin.Projection `json:"items"`
}

// timeless is what a watch compares: ages go on by themselves.
func (v projectionsView) timeless() any {
	var all []any
	for _, p := range v.Items {
		all = append(all, projectionView{p}.timeless())
	}
	return all
}

func (v projectionsView) draw(p *page) {
	if len(v.Items) == 0 {
		p.line("No projections are registered in this store yet: an application registers its projections when it starts.")
		return
	}
	drawProjections(p, v.Items, true)
}

// drawProjections tells how far the tables are that readers see; in full, also what else is going on.
func drawProjections(p *page, all []admin.Projection, full bool) {
	t := &table{columns: []column{
		{title: "PROJECTION", give: true},
		{title: "BUILD", right: true},
		{title: "BEHIND", right: true},
		{title: "STATE"},
		{title: "MOVED"},
		{title: "DELAY", right: true, wide: !full},
		{title: "WHAT", give: true, wide: !full},
		{title: "VERSION", right: true, wide: true},
		{title: "READS", wide: true},
	}}
	for _, one := range all {
		var current admin.ProjectionBuild
		for _, b := range one.Builds {
			if b.State == string(eventstore.BuildCurrent) {
				current = b
			}
		}
		reads := list(one.Categories)
		if len(one.Categories) == 0 {
			reads = "everything"
		}
		t.rows = append(t.rows, []cell{
			plain(one.Name), plain(fmt.Sprint(current.Number)), {text: dash(current.Behind)}, {one.State, paintOf(one.State)},
			{text: suffix(p.ago(current.Moved), " ago")}, {text: delay(current.Delay)}, plain(one.Words), plain(fmt.Sprint(one.Version)), plain(reads),
		})
	}
	p.table(t)
}

func paintOf(state string) paint {
	switch state {
	case "halted":
		return bad
	case "paused", "trying", "absent":
		return wary
	}
	return good
}

func delay(seconds float64) string {
	if seconds <= 0 {
		return "-"
	}
	return span(time.Duration(seconds * float64(time.Second)))
}

type projectionView struct{ admin.Projection }

func (v projectionView) timeless() any {
	p := v.Projection
	p.Words, p.Builds = "", append([]admin.ProjectionBuild(nil), p.Builds...)
	for i := range p.Builds {
		b := &p.Builds[i]
		b.Delay, b.Rate = 0, 0
		if b.Stopped != nil {
			stopped := *b.Stopped
			stopped.Words = ""
			b.Stopped = &stopped
		}
	}
	return p
}

func (v projectionView) draw(p *page) {
	var f fields
	f.add("projection", v.Name)
	f.addPainted("state", cell{v.State, paintOf(v.State)})
	f.add("now", v.Words)
	reads := list(v.Categories)
	if len(v.Categories) == 0 {
		reads = "everything"
	}
	f.add("reads", reads)
	f.add("version", fmt.Sprint(v.Version))
	if v.Pause != nil {
		f.add("paused", p.when(v.Pause.Since)+" by "+v.Pause.Actor+prefix(": ", v.Pause.Reason))
	}
	p.fields(f)
	for _, b := range v.Builds {
		p.blank()
		v.drawBuild(p, b)
	}
}

func (v projectionView) drawBuild(p *page, b admin.ProjectionBuild) {
	var f fields
	f.add("build", fmt.Sprintf("%d, %s, of version %d", b.Number, b.State, b.Version))
	f.add("tables", strings.Join(b.Tables, ", "))
	f.add("applied", amount(b.Applied, "event"))
	if b.Passed > 0 {
		f.add("passed over", amount(b.Passed, "event"))
	}
	if b.Skipped > 0 {
		f.add("skipped", amount(b.Skipped, "event"))
	}
	if b.Moves {
		f.add("behind", amount(b.Behind, "event")+prefix(", the first for ", strings.TrimPrefix(delay(b.Delay), "-")))
	}
	if b.Rate >= 0.1 {
		f.add("rate", fmt.Sprintf("%.1f events a second", b.Rate))
	}
	f.add("moved", p.when(b.Moved))
	f.add("began", p.when(b.Began))
	if b.Stopped != nil {
		paint := wary
		if b.Stopped.Halted {
			paint = bad
		}
		f.addPainted("stopped", cell{clean(b.Stopped.Words), paint})
	}
	p.fields(f)
	if b.Stopped != nil && b.Stopped.Halted {
		p.hint("Mend the cause, then: " + admin.CommandLine(p.typed, "projections retry", []string{"--expect", b.Stopped.EventID}, v.Name))
	}
}
