package command

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// signing is who acts and why.
type signing struct{ actor, reason string }

func (s *signing) define(flags *pflag.FlagSet, required bool) {
	why := "why: `TEXT` for the record of acts"
	if required {
		why += " (required)"
	}
	flags.StringVar(&s.reason, "reason", "", why)
	flags.StringVar(&s.actor, "actor", "", "who acts: `NAME` for the record of acts (default $KEYHOLD_ACTOR, or your name at the system)")
}

// stoppedAct is an act on a partition that is stopped at an event, or a job on many of them.
type stoppedAct struct {
	verb, short, long string
	kind              eventstore.ActKind
	job               eventstore.JobKind
	reason            bool // required
}

func (s *setting) partitionsAct(a stoppedAct) *cobra.Command {
	var sign signing
	var expect uint64
	var dryRun bool
	var many selection
	c := &cobra.Command{
		Use:   a.verb + " HANDLER [KEY]",
		Short: a.short,
		Long: a.long + `

With a KEY it is done at once, to the event that --expect names, or else to the one that the partition is stopped at now. Without, it is a job
over the stopped partitions of the handler that the filters select, or over --all: the running program does it, at --rate.`,
		Example: "  keyhold partitions " + a.verb + " shipping client-17" + example(a.reason) + "\n" +
			"  keyhold partitions " + a.verb + " shipping --type order.placed --dry-run",
		Args: between(1, "HANDLER", "KEY"),
		RunE: s.open(func(ctx context.Context, r *run, d *admin.Desk, args []string) error {
			if len(args) == 1 {
				return r.start(ctx, d, many, admin.JobRequest{
					Kind: a.job, Filter: admin.Filter{Handler: args[0]}, Actor: sign.actor, Reason: sign.reason}, dryRun)
			}
			if flag := many.given(r.command.Flags()); flag != "" {
				return misused("Leave the key out to act on all that the filters select.", "%s: --%s goes with no KEY", r.command.CommandPath(), flag)
			}
			unit := event.Unit{Name: args[0], Key: args[1]}
			seen, err := r.seen(ctx, d, unit, expect)
			if err != nil {
				return err
			}
			return r.act(ctx, d, admin.ActRequest{
				Kind: a.kind, Handler: unit.Name, Key: unit.Key, Expect: seen, Actor: sign.actor, Reason: sign.reason}, dryRun)
		}),
	}
	f := c.Flags()
	f.Uint64Var(&expect, "expect", 0, "`SEQUENCE` of the event that you saw it stopped at; refused when it is at another by now")
	f.BoolVar(&dryRun, "dry-run", false, "tell what would be done, and do nothing")
	sign.define(f, a.reason)
	many.define(c, false)
	s.completeFlag(c, "because", s.stopReasons)
	s.complete(c, s.handlers, s.stoppedKeys)
	return c
}

func example(reason bool) string {
	if reason {
		return ` --expect 5 --reason "the order was cancelled by phone"`
	}
	return " --expect 5"
}

// seen gives the state that the person saw: the present one, if it is the one expected. What was not expected by its sequence is left to
// the desk, which then acts on what it reads.
func (r *run) seen(ctx context.Context, d *admin.Desk, u event.Unit, expect uint64) (*admin.Expect, error) {
	if expect == 0 {
		return nil, nil
	}
	now, err := d.Unit(ctx, u, admin.ShowOptions{Waiting: -1})
	if err != nil {
		return nil, err
	}
	if now.Expect != nil && now.Expect.Sequence == expect {
		return now.Expect, nil
	}
	why := "it is not stopped at an event"
	if now.Expect != nil && now.Expect.Sequence > 0 {
		why = "it is stopped at " + now.Expect.String()
	}
	return nil, &admin.MovedError{Act: r.command.Name() + " " + u.Name + " " + u.Key, Why: why + ", not at #" + count(expect), Now: &now}
}

// act does one act, or tells what it would do.
func (r *run) act(ctx context.Context, d *admin.Desk, request admin.ActRequest, dryRun bool) error {
	if dryRun {
		preview, err := d.Preview(ctx, request)
		if err != nil {
			return err
		}
		return r.show(previewView{preview})
	}
	done, err := d.Act(ctx, request)
	if err != nil {
		return err
	}
	return r.show(doneView{done})
}

type previewView struct{ admin.Preview }

func (v previewView) draw(p *page) {
	p.line("Would " + clean(v.Act) + ": " + clean(v.Words))
	drawWarnings(p, v.Warnings)
	if v.Expect != nil && v.Expect.Sequence > 0 {
		p.hint("To do exactly this: the same without --dry-run, with --expect " + plainCount(v.Expect.Sequence))
	} else {
		p.hint("Nothing was done.")
	}
}

type doneView struct{ admin.ActResult }

func (v doneView) draw(p *page) {
	what := clean(admin.Verb(string(v.Kind))) + " " + clean(v.Handler)
	if v.Key != "" {
		what += " " + clean(v.Key)
	}
	p.line(p.colours.dye(good, "done: ") + what + prefix(": ", clean(v.Detail)))
	drawWarnings(p, v.Warnings)
	if v.TakenUp != "" {
		p.line("Taken up " + clean(v.TakenUp) + ".")
	}
	if v.Assumed && v.At != nil {
		p.hint("No --expect was given: it was done to the event that stopped it, " + clean(v.At.String()) + ".")
	}
	p.hint("Act " + plainCount(uint64(v.ID)) + " in the record, by " + clean(v.Actor) + prefix(": ", clean(v.Reason)))
}

func drawWarnings(p *page, all []string) {
	for _, w := range all {
		p.line(p.colours.dye(wary, "warning: ") + clean(w))
	}
}

// pausing makes pause and resume: of a partition, or of a whole handler.
func (s *setting) pausing(verb string, kind eventstore.ActKind, whole bool) *cobra.Command {
	var sign signing
	var dryRun bool
	c := &cobra.Command{
		Use:   verb + " HANDLER KEY",
		Short: map[string]string{"pause": "Have a partition read no further until it is resumed", "resume": "Have a paused partition go on"}[verb],
		Args:  exactly("HANDLER", "KEY"),
	}
	if whole {
		c.Use, c.Args = verb+" HANDLER", exactly("HANDLER")
		c.Short = map[string]string{"pause": "Have a handler read no further, with any key, until it is resumed", "resume": "Have a paused handler go on"}[verb]
	}
	c.RunE = s.open(func(ctx context.Context, r *run, d *admin.Desk, args []string) error {
		request := admin.ActRequest{Kind: kind, Handler: args[0], Actor: sign.actor, Reason: sign.reason}
		if !whole {
			request.Key = args[1]
		}
		return r.act(ctx, d, request, dryRun)
	})
	c.Flags().BoolVar(&dryRun, "dry-run", false, "tell what would be done, and do nothing")
	sign.define(c.Flags(), false)
	if whole {
		s.complete(c, s.handlers)
	} else {
		s.complete(c, s.handlers, s.keys)
	}
	return c
}

// selection is the flags that select many rows and say how they are worked through.
type selection struct {
	all     bool
	filter  admin.Filter
	from    moment
	until   moment
	rate    int
	yes     bool
	waiting bool
}

func (m *selection) define(c *cobra.Command, dead bool) {
	f := c.Flags()
	what := "stopped partition"
	if dead {
		what = "dead letter"
	}
	f.BoolVar(&m.all, "all", false, "every "+what+" of the handler")
	m.filters(c)
	f.IntVar(&m.rate, "rate", 0, "take `N` a second (default "+plainCount(eventstore.DefaultRate)+")")
	f.BoolVarP(&m.yes, "yes", "y", false, "do not ask; required for more than one where no terminal is")
	f.BoolVar(&m.waiting, "wait", false, "stay until the job is over, and show how far it is")
}

func (m *selection) filters(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&m.filter.Type, "type", "", "only those at an event of this `TYPE`")
	f.StringVar(&m.filter.Reason, "because", "", "only those stopped or set aside for exactly this `REASON`, as lists show it")
	f.Var(&m.from, "since", "only those since this `TIME`, such as 2026-11-30T08:00:00Z, or 2h for two hours ago")
	f.Var(&m.until, "before", "only those before this `TIME`, or longer ago")
}

// given names a flag of the selection that was given, "" if none was.
func (m *selection) given(flags *pflag.FlagSet) string {
	for _, name := range []string{"all", "type", "because", "since", "before", "rate", "yes", "wait"} {
		if flags.Changed(name) {
			return name
		}
	}
	return ""
}

// into completes a filter.
func (m *selection) into(f admin.Filter, now time.Time) admin.Filter {
	f.Type, f.Reason = m.filter.Type, m.filter.Reason
	f.From, f.Until = m.from.at(now), m.until.at(now)
	return f
}

func (m *selection) narrow() bool {
	return m.filter != (admin.Filter{}) || m.from != (moment{}) || m.until != (moment{})
}

// moment is a time as a flag: absolute, or how long ago.
type moment struct {
	time time.Time
	ago  time.Duration
}

func (m *moment) String() string {
	switch {
	case m.ago != 0:
		return m.ago.String()
	case !m.time.IsZero():
		return m.time.Format(time.RFC3339)
	}
	return ""
}

func (m *moment) Type() string { return "time" }

func (m *moment) Set(text string) error {
	if d, err := time.ParseDuration(strings.TrimSuffix(text, " ago")); err == nil && d > 0 {
		*m = moment{ago: d}
		return nil
	}
	for _, layout := range []string{time.RFC3339, instant, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04", time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			*m = moment{time: t}
			return nil
		}
	}
	return misused("", "%q is no time: give one such as 2026-11-30T08:00:00Z, or 2h for two hours ago", text)
}

func (m *moment) at(now time.Time) time.Time {
	if m.ago != 0 {
		return now.Add(-m.ago)
	}
	return m.time
}
