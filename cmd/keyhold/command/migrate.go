package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhold/keyhold/eventstore"
)

func (s *setting) migrate() *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the store to the format that this program needs",
		Long: `An application migrates its store when it starts, unless it was told not to. These commands do it before, so that the start of a new version
does not wait for it, and show what would be done. Steps only go forward: make a backup first.`,
	}
	c.AddCommand(s.migrateStatus(), s.migrateUp())
	return c
}

func (s *setting) migrateStatus() *cobra.Command {
	var withSQL bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the format of the store, and the steps to the one that this program needs",
		Args:  exactly(),
		RunE: s.bare(func(ctx context.Context, r *run) error {
			if err := s.there(ctx); err != nil {
				return err
			}
			v, err := s.formatNow(ctx)
			if err != nil {
				return err
			}
			v.withSQL = withSQL
			return r.show(v)
		}),
	}
	c.Flags().BoolVar(&withSQL, "sql", false, "show what the steps do")
	return c
}

func (s *setting) migrateUp() *cobra.Command {
	var dryRun, withSQL, create bool
	c := &cobra.Command{
		Use:   "up",
		Short: "Take the steps, while no program has the store open",
		Args:  exactly(),
		RunE: s.bare(func(ctx context.Context, r *run) error {
			if err := s.there(ctx); err != nil && !create {
				return err
			}
			v, err := s.formatNow(ctx)
			if err != nil {
				return err
			}
			v.withSQL, v.verb = withSQL, "would be taken"
			if v.Found > v.Known {
				return &fault{code: ExitMoved, err: fmt.Errorf("the store has format %d, this program knows up to %d", v.Found, v.Known), advice: "Use the command of the newer program."}
			}
			if dryRun || len(v.Pending) == 0 {
				return r.show(v)
			}
			done, err := s.migrations().Up(ctx)
			if err != nil {
				if len(done) > 0 {
					err = fmt.Errorf("%s taken, then: %w", amount(len(done), "step"), err)
				}
				return err
			}
			v.Done, v.Pending, v.Found = stepsOf(done), []stepView{}, v.Known
			return r.show(v)
		}),
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "show the steps, and take none")
	c.Flags().BoolVar(&withSQL, "sql", false, "show what the steps do")
	c.Flags().BoolVar(&create, "create", false, "make the store where there is none")
	return c
}

// bare makes of a command without a store what cobra runs.
func (s *setting) bare(do func(ctx context.Context, r *run) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, _ []string) error {
		r, err := s.begin(c)
		if err != nil {
			return err
		}
		return r.explain(do(c.Context(), r))
	}
}

// there reports a store that is not there: what was mistyped would become a new one.
func (s *setting) there(ctx context.Context) error {
	if s.options.Open != nil {
		return nil
	}
	place, err := s.place()
	if err != nil {
		return err
	}
	if isPostgres(place) {
		found, _, _, err := s.migrations().Status(ctx)
		if err == nil && found == 0 {
			err = noStore(place)
		}
		return err
	}
	if _, err := os.Stat(place); errors.Is(err, fs.ErrNotExist) {
		return noFile(place)
	}
	return nil
}

func (s *setting) formatNow(ctx context.Context) (formatView, error) {
	found, known, pending, err := s.migrations().Status(ctx)
	return formatView{Found: found, Known: known, Pending: stepsOf(pending), verb: "are to be taken"}, err
}

type stepView struct {
	Number int    `json:"number"`
	Name   string `json:"name"`
	SQL    string `json:"sql"`
}

func stepsOf(all []eventstore.Migration) []stepView {
	steps := []stepView{}
	for _, m := range all {
		steps = append(steps, stepView(m))
	}
	return steps
}

type formatView struct {
	Found   int        `json:"found"`
	Known   int        `json:"known"`
	Pending []stepView `json:"pending"`
	Done    []stepView `json:"done,omitempty"`
	withSQL bool
	verb    string
}

func (v formatView) draw(p *page) {
	switch {
	case v.Found > v.Known:
		p.line(p.colours.dye(bad, fmt.Sprintf("The store has format %d, newer than the %d that this program knows.", v.Found, v.Known)))
		p.hint("Use the newer program, or its command.")
		return
	case len(v.Done) > 0:
		p.line(p.colours.dye(good, fmt.Sprintf("The store has format %d now.", v.Found)) + " Taken:")
		v.drawSteps(p, v.Done)
		return
	case len(v.Pending) == 0:
		p.line(p.colours.dye(good, fmt.Sprintf("The store has format %d, which this program needs: there is nothing to do.", v.Found)))
		return
	}
	p.line(fmt.Sprintf("The store has format %d, this program needs %d. These steps %s:", v.Found, v.Known, v.verb))
	v.drawSteps(p, v.Pending)
	p.hint("Make a backup, stop the program that uses the store, then: " + p.typed + " migrate up")
}

func (v formatView) drawSteps(p *page, all []stepView) {
	for _, s := range all {
		p.line(fmt.Sprintf("  %d  %s", s.Number, clean(s.Name)))
		if !v.withSQL {
			continue
		}
		for line := range strings.Lines(s.SQL) {
			p.line(strings.TrimRight("       "+clean(strings.TrimRight(line, "\n")), " "))
		}
	}
}
