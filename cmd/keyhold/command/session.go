package command

import (
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// setting is what all commands of one tree share: the options, and the flags that every command has.
type setting struct {
	options Options
	env     environment

	db      string
	output  string
	noColor bool
}

const (
	asTable = "table"
	asWide  = "wide"
	asJSON  = "json"
)

func (s *setting) define(flags *pflag.FlagSet) {
	if s.options.Open == nil {
		flags.StringVar(&s.db, "db", "", "SQLite file of the store (default $KEYHOLD_DB)")
	}
	flags.StringVarP(&s.output, "output", "o", asTable, "table, wide (all columns, nothing shortened) or json")
	flags.BoolVar(&s.noColor, "no-color", false, "no colours (nor are there any with $NO_COLOR, or where no terminal is)")
}

// run is one run of one command.
type run struct {
	*setting
	command *cobra.Command
	in      io.Reader
	out     io.Writer
	err     io.Writer
	output  string
	screen  terminal // what out is
	colours palette
}

// begin looks at the streams and the flags that all commands have.
func (s *setting) begin(c *cobra.Command) (*run, error) {
	r := &run{setting: s, command: c, in: c.InOrStdin(), out: c.OutOrStdout(), err: c.ErrOrStderr(), output: s.output}
	switch r.output {
	case asTable, asWide, asJSON:
	default:
		return nil, misused("Use -o table, -o wide or -o json.", "%s: there is no output %q", c.CommandPath(), r.output)
	}
	r.screen = s.env.terminal(r.out)
	r.colours = palette(r.screen.is && !s.noColor && s.env.getenv("NO_COLOR") == "" && s.env.getenv("TERM") != "dumb")
	return r, nil
}

// actor names who acts in the store's record of acts.
func (s *setting) actor(given string) string {
	for _, name := range []func() string{
		func() string { return given },
		func() string { return s.env.getenv("KEYHOLD_ACTOR") },
		s.env.login,
	} {
		if n := name(); n != "" {
			return n
		}
	}
	return ""
}
