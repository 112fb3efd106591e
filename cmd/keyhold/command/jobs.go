package command

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/eventstore"
)

// start begins a job over what was selected, asks before where it must, and stays with it if told to.
func (r *run) start(ctx context.Context, d *admin.Desk, m selection, request admin.JobRequest, dryRun bool) error {
	if !m.all && !m.narrow() && request.Filter.Key == "" {
		return misused("Name a key or a filter such as --type, or give --all.", "%s: it is not said which of %s are meant", r.command.CommandPath(), clean(request.Filter.Handler))
	}
	now := r.env.now()
	request.Filter, request.Rate = m.into(request.Filter, now), m.rate
	plan, err := d.PlanJob(ctx, request)
	if err != nil {
		return err
	}
	if dryRun {
		return r.show(planView{plan})
	}
	if plan.Count == 0 {
		return missing("See "+r.advise(listOf(request.Kind), nil, request.Filter.Handler), "nothing to do: no %s of %s is selected", subject(request.Kind), clean(request.Filter.Handler))
	}
	if err := r.confirm(confirmation{view: planView{plan}, yes: m.yes, word: wordFor(request), few: plan.Count == 1}); err != nil {
		return err
	}
	job, err := d.StartJob(ctx, request)
	if err != nil {
		return err
	}
	if m.waiting {
		return r.follow(ctx, d, job.ID, time.Second)
	}
	return r.show(jobView{Job: job})
}

// wordFor is what a person types to confirm: what cannot be undone asks for the name of the handler.
func wordFor(request admin.JobRequest) string {
	if request.Kind == eventstore.JobPurge {
		return request.Filter.Handler
	}
	return "yes"
}

func subject(kind eventstore.JobKind) string {
	if kind == eventstore.JobReplay || kind == eventstore.JobPurge {
		return "dead letter"
	}
	return "stopped partition"
}

func listOf(kind eventstore.JobKind) string {
	if kind == eventstore.JobReplay || kind == eventstore.JobPurge {
		return "dlq ls"
	}
	return "partitions ls"
}

type planView struct{ admin.JobPlan }

func (v planView) draw(p *page) {
	p.line(clean(v.Words))
	drawWarnings(p, v.Warnings)
	if len(v.First) > 0 {
		p.blank()
		drawDead(p, v.First)
		if rest := v.Count - len(v.First); rest > 0 {
			p.hint("… and " + count(rest) + " more")
		}
	}
}

func (s *setting) jobs() *cobra.Command {
	c := &cobra.Command{
		Use:     "jobs",
		Aliases: []string{"job"},
		Short:   "Acts on many partitions or dead letters, and how far they are",
		Long: `A job is an act on many partitions or dead letters. It is kept in the store, done by the running program in small steps, and goes on where
it stood after a restart.`,
	}
	c.AddCommand(s.jobsList(), s.jobsShow(), s.jobsWatch(),
		s.jobsAct("pause", "Have a job take nothing further until it is resumed", (*admin.Desk).PauseJob),
		s.jobsAct("resume", "Have a paused job go on", (*admin.Desk).ResumeJob),
		s.jobsAct("cancel", "End a job; what it has done stays done", (*admin.Desk).CancelJob))
	return c
}

func (s *setting) jobsList() *cobra.Command {
	var w watching
	var q admin.JobQuery
	c := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List jobs, the newest first",
		Args:    exactly(),
		RunE: s.open(func(ctx context.Context, r *run, d *admin.Desk, _ []string) error {
			return r.watch(ctx, w, func(ctx context.Context) (view, error) {
				page, err := d.Jobs(ctx, q)
				return jobsView{page, q}, err
			})
		}),
	}
	c.Flags().BoolVar(&q.Open, "open", false, "only those that are not over")
	paging(c, &q.Limit, &q.Cursor)
	w.define(c.Flags())
	return c
}

type jobsView struct {
	admin.Page[admin.Job]
	query admin.JobQuery
}

func (v jobsView) draw(p *page) {
	if len(v.Items) == 0 && v.Next == "" {
		if v.query.Open {
			p.line(p.colours.dye(good, "No job is under way."))
			return
		}
		p.line("There has been no job yet.")
		p.hint("A job begins with an act on many: " + p.typed + " dlq replay HANDLER --all")
		return
	}
	t := &table{columns: []column{
		{title: "JOB", right: true},
		{title: "KIND"},
		{title: "HANDLER", give: true},
		{title: "STATE"},
		{title: "DONE", right: true},
		{title: "FAILED", right: true},
		{title: "IN HAND", right: true},
		{title: "OF", right: true},
		{title: "LEFT", right: true},
		{title: "BEGAN"},
		{title: "BY", give: true},
		{title: "WHY", give: true},
		{title: "RATE", right: true, wide: true},
		{title: "CHANGED", wide: true},
	}}
	for _, j := range v.Items {
		t.rows = append(t.rows, []cell{
			{text: strconv.FormatInt(j.ID, 10)}, plain(admin.Verb(string(j.Kind))), plain(j.Filter.Handler), jobState(j), {text: count(j.Through)}, tally(j.Failed, bad),
			tally(j.Waiting, asIs), {text: count(j.Total)}, {text: left(j)}, {text: suffix(p.ago(j.Began), " ago")}, plain(j.Actor), plain(j.Reason),
			{text: fmt.Sprintf("%d/s", j.Rate)}, {text: stamp(j.Changed)},
		})
	}
	p.table(t)
	p.more(v.Next)
}

func jobState(j admin.Job) cell {
	c := plain(string(j.State))
	switch j.State {
	case eventstore.JobPaused, eventstore.JobCancelled:
		c.paint = wary
	case eventstore.JobDone:
		c.paint = good
		if j.Failed > 0 {
			c.paint = bad
		}
	}
	return c
}

// left is how long a job still takes at its rate, while it runs.
func left(j admin.Job) string {
	if j.State != eventstore.JobRunning || j.Rate <= 0 {
		return ""
	}
	rest := max(j.Total-j.Handed, 0)
	return span(time.Duration((rest+j.Rate-1)/j.Rate) * time.Second)
}

func over(j admin.Job) bool {
	return j.State == eventstore.JobDone || j.State == eventstore.JobCancelled
}

type jobView struct {
	admin.Job
	followed bool // it is shown until it is over
}

func (v jobView) timeless() any {
	j := v.Job
	j.Words = ""
	return j
}

func (v jobView) draw(p *page) {
	state := jobState(v.Job)
	p.line(fmt.Sprintf("job %d, %s of %s: ", v.ID, clean(admin.Verb(string(v.Kind))), clean(v.Filter.Handler)) + p.colours.dye(state.paint, state.text))
	p.line(bar(v.Job))
	var f fields
	if v.Failed > 0 {
		f.addPainted("failed", cell{amount(v.Failed, subject(v.Kind)) + " failed again and stayed", bad})
	}
	if v.Waiting > 0 {
		f.add("in hand", count(v.Waiting))
	}
	f.add("left", suffix(left(v.Job), fmt.Sprintf(" at %d a second", v.Rate)))
	f.add("selects", selects(v.Filter))
	f.add("by", v.Actor+prefix(": ", v.Reason))
	f.add("began", p.when(v.Began))
	f.add("changed", p.when(v.Changed))
	f.add("at work", v.Live)
	p.fields(f)
	if !over(v.Job) && !v.followed {
		p.hint(fmt.Sprintf("Follow it: %s jobs watch %d", p.typed, v.ID))
	}
	if v.State == eventstore.JobDone && v.Kind == eventstore.JobRetry {
		see := func(status string) string {
			return admin.CommandLine(p.typed, "partitions ls", []string{"--status", status}, v.Filter.Handler)
		}
		p.hint("What fails again stops again; see which: " + see("halted") + " (or --status parking)")
	}
}

// bar draws how far a job is.
func bar(j admin.Job) string {
	const width = 30
	ended := j.Through + j.Failed
	full := 0
	if j.Total > 0 {
		full = min(ended*width/j.Total, width)
	}
	what := ""
	if j.Kind == eventstore.JobRetry {
		what = "handed back to the program: "
	}
	return fmt.Sprintf("[%s%s] "+what+"%s of %s", strings.Repeat("#", full), strings.Repeat(".", width-full), count(ended), count(j.Total))
}

// selects tells a filter in words.
func selects(f admin.Filter) string {
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+" "+value)
		}
	}
	add("key", f.Key)
	add("type", f.Type)
	add("reason", f.Reason)
	add("event", f.EventID)
	add("since", stamp(f.From))
	add("before", stamp(f.Until))
	if len(parts) == 0 {
		return "all of " + f.Handler
	}
	return strings.Join(parts, ", ")
}

func (s *setting) jobsShow() *cobra.Command {
	c := &cobra.Command{
		Use:   "show JOB",
		Short: "Show one job",
		Args:  exactly("JOB"),
		RunE: s.open(func(ctx context.Context, r *run, d *admin.Desk, args []string) error {
			id, err := r.jobID(args[0])
			if err != nil {
				return err
			}
			job, err := d.Job(ctx, id)
			if err != nil {
				return err
			}
			return r.show(jobView{Job: job})
		}),
	}
	s.complete(c, s.jobIDs)
	return c
}

func (s *setting) jobsWatch() *cobra.Command {
	var every time.Duration
	c := &cobra.Command{
		Use:   "watch JOB",
		Short: "Show how far a job is, until it is over",
		Args:  exactly("JOB"),
		RunE: s.open(func(ctx context.Context, r *run, d *admin.Desk, args []string) error {
			id, err := r.jobID(args[0])
			if err != nil {
				return err
			}
			return r.follow(ctx, d, id, every)
		}),
	}
	c.Flags().DurationVar(&every, "every", time.Second, "how often to look")
	s.complete(c, s.jobIDs)
	return c
}

// follow shows a job until it is over. One that ended without doing all it was to do is an error, for scripts that wait for it.
func (r *run) follow(ctx context.Context, d *admin.Desk, id int64, every time.Duration) error {
	var last admin.Job
	err := r.repeat(ctx, every, func(ctx context.Context) (view, bool, error) {
		job, err := d.Job(ctx, id)
		last = job
		return jobView{job, true}, over(job), err
	})
	switch {
	case err != nil || !over(last):
		return err
	case last.State == eventstore.JobCancelled:
		return &fault{code: ExitError, err: fmt.Errorf("job %d was cancelled", id), advice: "See who did it: " + r.typed() + " audit --limit 20"}
	case last.Failed > 0:
		return &fault{code: ExitError, err: fmt.Errorf("job %d is over, %s failed", id, amount(last.Failed, subject(last.Kind))),
			advice: "See why: " + r.advise(listOf(last.Kind), nil, last.Filter.Handler)}
	}
	return nil
}

func (s *setting) jobsAct(verb, short string, do func(*admin.Desk, context.Context, int64, string, string) (admin.Job, error)) *cobra.Command {
	var sign signing
	c := &cobra.Command{
		Use:   verb + " JOB",
		Short: short,
		Args:  exactly("JOB"),
		RunE: s.open(func(ctx context.Context, r *run, d *admin.Desk, args []string) error {
			id, err := r.jobID(args[0])
			if err != nil {
				return err
			}
			job, err := do(d, ctx, id, sign.actor, sign.reason)
			if err != nil {
				return err
			}
			return r.show(jobView{Job: job})
		}),
	}
	sign.define(c.Flags(), false)
	s.complete(c, s.jobIDs)
	return c
}

func (r *run) jobID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return 0, misused("Jobs have numbers; see "+r.typed()+" jobs ls.", "%q is no number of a job", text)
	}
	return id, nil
}
