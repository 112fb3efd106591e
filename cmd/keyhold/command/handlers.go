package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/eventstore"
)

func (s *setting) handlersCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "handlers",
		Aliases: []string{"handler"},
		Short:   "Handlers as a whole: how far they are, pause, rename, remove, begin anew",
		Long: `A handler is known to the store by its name, together with its place in every partition. A program that registers it under another name
begins another handler: rename it here first. Rename, rm and reset need that no program has the store open.`,
	}
	c.AddCommand(s.handlersList(),
		s.pausing("pause", eventstore.ActPause, true), s.pausing("resume", eventstore.ActResume, true),
		s.handlersRename(), s.handlersRemove(), s.handlersReset())
	return c
}

func (s *setting) handlersList() *cobra.Command {
	var w watching
	c := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List handlers and entity kinds, and how far they are",
		Args:    exactly(),
		RunE: s.open(func(ctx context.Context, r *run, d *admin.Desk, _ []string) error {
			return r.watch(ctx, w, func(ctx context.Context) (view, error) {
				all, err := d.Handlers(ctx)
				return handlersView{orEmpty(all)}, err
			})
		}),
	}
	w.define(c.Flags())
	return c
}

type handlersView struct {
	Items []admin.Handler `json:"items"`
}

func (v handlersView) timeless() any {
	return statusView{Status: admin.Status{Handlers: v.Items}}.timeless()
}

func (v handlersView) draw(p *page) { drawHandlers(p, v.Items) }

// upheaval is an act on a whole handler that cannot be taken back.
type upheaval struct {
	sign   signing
	dryRun bool
	yes    bool
}

func (u *upheaval) define(c *cobra.Command) {
	c.Flags().BoolVar(&u.dryRun, "dry-run", false, "tell what would be done, and do nothing")
	c.Flags().BoolVarP(&u.yes, "yes", "y", false, "do not ask; required where no terminal is")
	u.sign.define(c.Flags(), true)
}

func (u *upheaval) do(ctx context.Context, r *run, d *admin.Desk, request admin.ActRequest) error {
	request.Actor, request.Reason = u.sign.actor, u.sign.reason
	preview, err := d.Preview(ctx, request)
	if err != nil {
		return err
	}
	if !u.dryRun {
		if err := r.confirm(confirmation{view: previewView{preview}, yes: u.yes, word: request.Handler}); err != nil {
			return err
		}
	}
	return r.act(ctx, d, request, u.dryRun)
}

func (s *setting) handlersRename() *cobra.Command {
	var u upheaval
	c := &cobra.Command{
		Use:   "rename OLD NEW",
		Short: "Give all that the store keeps of a handler to another name, before a program registers it",
		Args:  exactly("OLD", "NEW"),
		RunE: s.open(func(ctx context.Context, r *run, d *admin.Desk, args []string) error {
			return u.do(ctx, r, d, admin.ActRequest{Kind: eventstore.ActRename, Handler: args[0], To: args[1]})
		}),
	}
	u.define(c)
	s.complete(c, s.handlers)
	return c
}

func (s *setting) handlersRemove() *cobra.Command {
	var u upheaval
	c := &cobra.Command{
		Use:   "rm HANDLER",
		Short: "Forget a handler: its place in every partition, and what it set aside",
		Args:  exactly("HANDLER"),
		RunE: s.open(func(ctx context.Context, r *run, d *admin.Desk, args []string) error {
			return u.do(ctx, r, d, admin.ActRequest{Kind: eventstore.ActRemove, Handler: args[0]})
		}),
	}
	u.define(c)
	s.complete(c, s.handlers)
	return c
}

func (s *setting) handlersReset() *cobra.Command {
	var u upheaval
	var from string
	c := &cobra.Command{
		Use:   "reset HANDLER --from oldest|now|TIME",
		Short: "Have a handler begin anew: with the first event, with what comes from now on, or at a time",
		Long: `Reset puts the place of a handler in every partition to where a new one would begin, and forgets what it halted at and what it parked. Dead
letters stay. What the handler wrote is the application's: events that it applied before are applied again.`,
		Example: "  keyhold handlers reset clients --from oldest --reason \"the read model was wrong\"",
		Args:    exactly("HANDLER"),
		RunE: s.open(func(ctx context.Context, r *run, d *admin.Desk, args []string) error {
			begin, err := r.beginning(from)
			if err != nil {
				return err
			}
			return u.do(ctx, r, d, admin.ActRequest{Kind: eventstore.ActReset, Handler: args[0], From: begin})
		}),
	}
	c.Flags().StringVar(&from, "from", "", "`WHERE` to begin: oldest, now, a time such as 2026-11-30T08:00:00Z, or 2h for two hours ago (required)")
	u.define(c)
	s.complete(c, s.handlers)
	fixed(c, "from", "oldest", "now")
	return c
}

func (r *run) beginning(from string) (*admin.From, error) {
	switch from {
	case "":
		return nil, misused("Say --from oldest, --from now, or --from with a time.", "%s: it is not said where the handler begins", r.command.CommandPath())
	case "oldest":
		return &admin.From{}, nil
	case "now":
		return &admin.From{Now: true}, nil
	}
	var m moment
	if err := m.Set(from); err != nil {
		return nil, err
	}
	return &admin.From{Time: m.at(r.env.now())}, nil
}
