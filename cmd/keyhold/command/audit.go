package command

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/keyhold/keyhold/admin"
)

func (s *setting) audit() *cobra.Command {
	var w watching
	var q admin.AuditQuery
	c := &cobra.Command{
		Use:   "audit [HANDLER [KEY]]",
		Short: "Who did what and why, the newest first",
		Args:  between(0, "HANDLER", "KEY"),
		RunE: s.open(func(ctx context.Context, r *run, d *admin.Desk, args []string) error {
			if err := argument(args, &q.Handler, "handler"); err != nil {
				return err
			}
			if len(args) > 1 {
				q.Key = args[1]
			}
			return r.watch(ctx, w, func(ctx context.Context) (view, error) {
				page, err := d.Audit(ctx, q)
				return auditView{page, q}, err
			})
		}),
	}
	f := c.Flags()
	f.StringVar(&q.Handler, "handler", "", "of this `HANDLER` only")
	f.StringVar(&q.Key, "key", "", "of this `KEY` only")
	paging(c, &q.Limit, &q.Cursor)
	w.define(f)
	s.complete(c, s.handlers, s.keys)
	s.completeFlag(c, "handler", s.handlers)
	return c
}

type auditView struct {
	admin.Page[admin.Audit]
	query admin.AuditQuery
}

func (v auditView) draw(p *page) {
	if len(v.Items) == 0 && v.Next == "" {
		if v.query.Handler == "" && v.query.Key == "" {
			p.line("Nobody has acted on this store yet.")
			return
		}
		p.line("Nobody has acted on that.")
		p.hint("See all acts: " + p.typed + " audit")
		return
	}
	t := &table{columns: []column{
		{title: "ACT", right: true},
		{title: "WHEN"},
		{title: "WHO", give: true},
		{title: "DID"},
		{title: "TO", give: true},
		{title: "EVENT", give: true, wide: true},
		{title: "REASON", give: true},
		{title: "WHAT CHANGED", give: true},
		{title: "JOB", right: true, wide: true},
	}}
	for _, a := range v.Items {
		to, at, job := a.Handler, "", ""
		if a.Key != "" {
			to += " " + a.Key
		}
		if a.At != nil {
			at = a.At.String()
			if to == "" { // a lane, as an adoption is of one
				to = lane(a.At.Category, a.At.Backfill) + " " + a.At.Key
			}
		}
		if a.Job != 0 {
			job = strconv.FormatInt(a.Job, 10)
		}
		when := p.ago(a.Time) + " ago"
		if p.wide {
			when = stamp(a.Time)
		}
		t.rows = append(t.rows, []cell{
			{text: strconv.FormatInt(a.ID, 10)}, {text: when}, plain(a.Actor), plain(admin.Verb(string(a.Kind))), plain(to), plain(at), plain(a.Reason), plain(a.Detail), {text: job},
		})
	}
	p.table(t)
	p.more(v.Next)
}
