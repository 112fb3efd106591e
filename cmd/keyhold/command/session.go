package command

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/eventstore"
)

// setting is what all commands of one tree share: the options, and the flags that every command has.
type setting struct {
	options Options
	env     environment
	top     *cobra.Command // of the tree, which may hang below another

	db      string
	output  string
	noColor bool
}

// What -o may say.
const (
	asTable = "table"
	asWide  = "wide"
	asJSON  = "json"
)

func (s *setting) define(flags *pflag.FlagSet) {
	if s.options.Open == nil {
		usual := "$KEYHOLD_DB"
		if s.options.DB != "" {
			usual += ", or " + redacted(s.options.DB)
		}
		flags.StringVar(&s.db, "db", "", "`STORE`: the SQLite file of the application, or the postgres:// URL of its database (default "+usual+")")
	}
	flags.StringVarP(&s.output, "output", "o", asTable, "`FORMAT`: table, wide (all columns, nothing shortened) or json")
	flags.BoolVar(&s.noColor, "no-color", false, "no colours; there are none with $NO_COLOR either, nor where no terminal is")
}

// run is one run of one command.
type run struct {
	*setting
	command *cobra.Command
	in      io.Reader
	out     io.Writer
	err     io.Writer
	screen  terminal // what out is
	colours palette
}

// begin looks at the streams and the flags that all commands have.
func (s *setting) begin(c *cobra.Command) (*run, error) {
	r := &run{setting: s, command: c, in: c.InOrStdin(), out: c.OutOrStdout(), err: c.ErrOrStderr()}
	switch s.output {
	case asTable, asWide, asJSON:
	default:
		return nil, misused("Use -o table, -o wide or -o json.", "%s: there is no output %q", c.CommandPath(), s.output)
	}
	r.screen = s.env.terminal(r.out)
	r.colours = palette(r.screen.is && !s.noColor && s.env.getenv("NO_COLOR") == "" && s.env.getenv("TERM") != "dumb")
	return r, nil
}

// work is what a command does with an open store.
type work func(ctx context.Context, r *run, d *admin.Desk, args []string) error

// open makes of it what cobra runs: it opens the store, and closes it whatever happens.
func (s *setting) open(do work) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) (err error) {
		r, err := s.begin(c)
		if err != nil {
			return err
		}
		store, closer, err := s.attach(c.Context())
		if err != nil {
			return r.explain(err)
		}
		defer func() { err = errors.Join(err, closer.Close()) }()
		return r.explain(do(c.Context(), r, s.desk(turns{store, r}), args))
	}
}

func (s *setting) desk(store eventstore.Operations) *admin.Desk {
	return admin.New(store, admin.Options{Actor: s.me(), Command: s.typed(), Now: s.env.now})
}

// typed is what command lines begin with that the person would type for this store.
func (s *setting) typed() string {
	var flags []string
	if s.db != "" {
		flags = []string{"--db", redacted(s.db)}
	}
	return admin.CommandLine(s.top.CommandPath(), "", flags)
}

// advise is a command line that a person may copy.
func (s *setting) advise(which string, flags []string, args ...string) string {
	return admin.CommandLine(s.typed(), which, flags, args...)
}

// me names who acts in the store's record of acts, where the command line does not.
func (s *setting) me() string {
	if name := s.env.getenv("KEYHOLD_ACTOR"); name != "" {
		return name
	}
	return s.env.login()
}
