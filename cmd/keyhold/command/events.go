package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
)

func (s *setting) events() *cobra.Command {
	c := &cobra.Command{
		Use:     "events",
		Aliases: []string{"event"},
		Short:   "Read the events themselves",
		Long: `These commands read events and commands as the store keeps them: with the names of their fields, and without the application's program.
They show what the events hold; --no-data leaves it out.`,
	}
	c.AddCommand(s.eventsCat(), s.eventsTail())
	return c
}

// reading is which events are read, and how they are shown.
type reading struct {
	query  admin.EventQuery
	entity string
	noData bool
	after  string
}

func (g *reading) define(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&g.entity, "entity", "", "the events of one entity, `KIND/ID`, such as order/o-17")
	f.BoolVar(&g.query.Backfill, "backfill", false, "the backfill lane of the key instead of the primary one")
	f.BoolVar(&g.noData, "no-data", false, "leave out what the events hold")
}

const readingForms = `Without arguments all events are read, with CATEGORY those of a category, with CATEGORY KEY those of one partition in their order, with
--entity those of one entity.`

// asked makes the query of the arguments.
func (g *reading) asked(r *run, args []string) error {
	g.query.Payload = !g.noData
	switch {
	case g.entity != "" && len(args) > 0:
		return misused("Leave one of them out.", "%s: --entity goes with no CATEGORY", r.command.CommandPath())
	case g.query.Backfill && len(args) < 2:
		return misused("Name them: "+r.command.CommandPath()+" CATEGORY KEY --backfill", "%s: --backfill goes with CATEGORY and KEY", r.command.CommandPath())
	case g.entity != "":
		kind, id, ok := strings.Cut(g.entity, "/")
		if !ok || kind == "" || id == "" {
			return misused("Give kind and id, such as --entity order/o-17.", "%q names no entity", g.entity)
		}
		g.query.Entity = event.Stream{Kind: kind, ID: id}
	case len(args) == 1:
		g.query.Categories = args
	case len(args) == 2:
		g.query.Category, g.query.Key = args[0], args[1]
	}
	if g.after == "" {
		return nil
	}
	number, err := strconv.ParseUint(g.after, 10, 64)
	switch numbered := g.entity != "" || len(args) == 2; {
	case err != nil:
		g.query.Cursor = g.after
	case !numbered:
		return misused("Give the cursor that the page before ended with.", "%s: events of several keys have no common numbers to begin after %s", r.command.CommandPath(), g.after)
	default:
		g.query.After = number
	}
	return nil
}

func (s *setting) eventsCat() *cobra.Command {
	var g reading
	c := &cobra.Command{
		Use:     "cat [CATEGORY [KEY]]",
		Short:   "Print events, the oldest first",
		Long:    "Cat prints events, the oldest first.\n\n" + readingForms,
		Example: "  keyhold events cat order client-17\n  keyhold events cat order client-17 --after 4 --limit 1\n  keyhold events cat --entity order/o-17",
		Args:    between(0, "CATEGORY", "KEY"),
		RunE: s.open(func(ctx context.Context, r *run, d *admin.Desk, args []string) error {
			if err := g.asked(r, args); err != nil {
				return err
			}
			page, err := d.Events(ctx, g.query)
			if err != nil {
				return err
			}
			return r.show(eventsView{page, g.query})
		}),
	}
	g.define(c)
	c.Flags().IntVar(&g.query.Limit, "limit", admin.DefaultLimit, "at most `N`, up to "+count(admin.MaxLimit))
	c.Flags().StringVar(&g.after, "after", "", "begin after this sequence of the partition or version of the entity, or after the `CURSOR` that a page ended with")
	s.complete(c, s.categories, s.keys)
	s.completeFlag(c, "entity", s.entities)
	return c
}

type eventsView struct {
	admin.Page[admin.Event]
	query admin.EventQuery
}

func (v eventsView) draw(p *page) {
	if len(v.Items) == 0 && v.Next == "" {
		p.line("There are no events here.")
		if v.query.After > 0 || v.query.Cursor != "" {
			p.hint("None yet after the place given; leave --after out to begin with the first.")
		} else if v.query.Key != "" {
			p.hint("See which keys there are: " + admin.CommandLine(p.typed, "partitions ls", []string{"--category", v.query.Category}))
		}
		return
	}
	for _, e := range v.Items {
		drawEvent(p, e)
	}
	p.more(v.Next)
}

// drawEvent writes an event as a line about it, then what it holds where that is given.
func drawEvent(p *page, e admin.Event) {
	what := p.colours.dye(faint, "void, a record that was abandoned or erased")
	if !e.Void {
		what = clean(e.Type) + " v" + strconv.Itoa(e.Version)
	}
	line := clean(e.At.String()) + "  " + what + "  " + p.colours.dye(faint, stamp(e.Time))
	if e.Entity != "" {
		line += p.colours.dye(faint, "  "+clean(e.Entity)+" v"+plainCount(e.EntityVersion))
	}
	if p.wide {
		for _, more := range []string{
			prefix("id ", e.ID), prefix("tenant ", e.Tenant), prefix("correlation ", e.CorrelationID), prefix("causation ", e.CausationID), prefix("trace ", e.TraceParent),
			suffix(e.Encoding, ", "+amount(e.Size, "byte")),
		} {
			if more != "" {
				line += "\n    " + p.colours.dye(faint, clean(more))
			}
		}
	}
	p.line(line)
	if e.Payload != nil {
		drawPayload(p, *e.Payload)
	}
}

func drawPayload(p *page, held admin.Payload) {
	const margin = "    "
	var b bytes.Buffer
	switch {
	case held.JSON == nil && held.Why != "":
		p.line(margin + p.colours.dye(wary, clean(held.Why)) + prefix(": ", clean(held.Base64)))
		return
	case held.JSON == nil:
		p.line(margin + clean(held.Base64))
		return
	case p.wide:
		_ = json.Indent(&b, held.JSON, "", "  ")
	default:
		_ = json.Compact(&b, held.JSON)
	}
	for line := range strings.Lines(b.String()) {
		p.line(margin + clean(strings.TrimSuffix(line, "\n")))
	}
}

// drawEvents lists events without what they hold, or, where that was asked for, with it.
func drawEvents(p *page, all []admin.Event) {
	for _, e := range all {
		if e.Payload != nil {
			for _, e := range all {
				drawEvent(p, e)
			}
			return
		}
	}
	t := &table{columns: []column{
		{title: "EVENT", give: true},
		{title: "TYPE", give: true},
		{title: "WAITS"},
		{title: "BYTES", right: true},
		{title: "TIME", wide: true},
		{title: "ID", wide: true},
	}}
	for _, e := range all {
		typ := plain(e.Type)
		if e.Void {
			typ = cell{"void", faint}
		}
		t.rows = append(t.rows, []cell{plain(e.At.String()), typ, {text: p.ago(e.Time)}, {text: strconv.Itoa(e.Size)}, {text: stamp(e.Time)}, plain(e.ID)})
	}
	p.table(t)
}

func (s *setting) eventsTail() *cobra.Command {
	var g reading
	var last int
	var every time.Duration
	c := &cobra.Command{
		Use:     "tail [CATEGORY [KEY]]",
		Short:   "Print the newest events, then those that come, until interrupted",
		Long:    "Tail prints the newest events, then those that come, until interrupted. With -o json each is one line.\n\n" + readingForms,
		Example: "  keyhold events tail order\n  keyhold events tail order client-17 -o json",
		Args:    between(0, "CATEGORY", "KEY"),
		RunE: s.open(func(ctx context.Context, r *run, d *admin.Desk, args []string) error {
			if err := g.asked(r, args); err != nil {
				return err
			}
			return r.tail(ctx, d, g.query, last, every)
		}),
	}
	g.define(c)
	tailFlags(c.Flags(), &last, &every)
	s.complete(c, s.categories, s.keys)
	s.completeFlag(c, "entity", s.entities)
	return c
}

func tailFlags(f *pflag.FlagSet, last *int, every *time.Duration) {
	f.IntVarP(last, "lines", "n", 10, "begin with the `N` newest")
	f.DurationVar(every, "every", time.Second, "how often to look for new ones")
}

// each writes events one by one: as text, or one JSON document a line.
func (r *run) each(all []admin.Event) error {
	if r.setting.output != asJSON {
		if len(all) == 0 {
			return nil
		}
		return r.show(eventsView{Page: admin.Page[admin.Event]{Items: all}})
	}
	for _, e := range all {
		line, err := document(e, "")
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(r.out, "%s", line); err != nil {
			return err
		}
	}
	return nil
}
