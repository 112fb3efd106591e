package command

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const about = `Look at a Keyhold store, find out what is stopped and why, and set it going again.

It works beside the application that has the store open, and on a store that nobody has open. It runs no handlers itself: what an act
allows to go on, the application does, within a moment or at its next start.`

// New makes the command, for a program of its own or to be added to the root command of an application.
func New(o Options) *cobra.Command { return newCommand(o, system()) }

func newCommand(o Options, env environment) *cobra.Command {
	o.Name = cmp.Or(o.Name, "keyhold")
	s := &setting{options: o, env: env}
	root := &cobra.Command{
		Use:   o.Name,
		Short: "Look at a Keyhold store and act on what is stopped",
		Long:  about,
	}
	s.top = root
	s.define(root.PersistentFlags())
	root.AddGroup(
		&cobra.Group{ID: "look", Title: "Look:"},
		&cobra.Group{ID: "act", Title: "Look and act:"},
		&cobra.Group{ID: "keep", Title: "Maintain:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("look", s.status(), s.why(), s.events(), s.audit())
	add("act", s.partitions(), s.dead(), s.jobs(), s.handlersCommand(), s.projectionsCommand(), s.lanes())
	if o.Open == nil || o.Migrations != nil {
		add("keep", s.migrate())
	}
	add("keep", s.version())
	root.SetHelpCommandGroupID("keep")
	root.SetCompletionCommandGroupID("keep")
	s.settle(root)
	return root
}

// settle gives all commands of the tree what they have in common.
func (s *setting) settle(c *cobra.Command) {
	// What cobra prints after an error is a page of usage: whoever reads it at night looks for the error in it.
	c.SilenceUsage = true
	c.SuggestionsMinimumDistance = 2
	c.SetFlagErrorFunc(flagFault)
	if !c.Runnable() {
		c.Args = cobra.ArbitraryArgs
		c.RunE = groupFault
	}
	for _, child := range c.Commands() {
		s.settle(child)
	}
}

// groupFault is what a command that only has subcommands does by itself: it prints its help, or says which of them may have been meant.
func groupFault(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	advice := fmt.Sprintf("See %s --help.", c.CommandPath())
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		advice = fmt.Sprintf("Did you mean %s %s?", c.CommandPath(), strings.Join(near, " or "))
	}
	return misused(advice, "%s has no command %q", c.CommandPath(), args[0])
}

// flagFault says what is wrong with the flags, and which may have been meant.
func flagFault(c *cobra.Command, err error) error {
	advice := fmt.Sprintf("See %s --help.", c.CommandPath())
	if strings.HasPrefix(err.Error(), "unknown ") && strings.Contains(c.Use, "KEY") {
		advice = "If it is a key: one that begins with - is given after --, behind all flags."
	}
	if name, ok := strings.CutPrefix(err.Error(), "unknown flag: --"); ok {
		name, _, _ = strings.Cut(name, "=")
		best, least := "", 3
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if d := distance(name, f.Name); !f.Hidden && (d < least && d < len(name) || strings.HasPrefix(f.Name, name)) {
				best, least = f.Name, d
			}
		})
		if best != "" {
			advice = "Did you mean --" + best + "?"
		}
	}
	what, _, isNumber := strings.Cut(err.Error(), ": strconv.")
	if isNumber {
		what += ": that is no number"
	}
	return misused(advice, "%s: %s", c.CommandPath(), what)
}

// distance is how many letters have to be added, removed or changed to make one word of the other.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// Execute runs the command as a program does: what went wrong goes to the error stream, and the exit code is returned.
func Execute(ctx context.Context, c *cobra.Command) int {
	c.SilenceErrors = true
	err := c.ExecuteContext(ctx)
	Report(c.ErrOrStderr(), err)
	return ExitCode(err)
}

// exactly wants one argument for each name.
func exactly(names ...string) cobra.PositionalArgs {
	return between(len(names), names...)
}

// between wants the first of the arguments named; the others may be left out.
func between(least int, names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return misused("Usage: "+c.UseLine(), "%s: %s is missing", c.CommandPath(), names[len(args)])
		case len(args) > len(names):
			return misused("Usage: "+c.UseLine(), "%s: %q is one argument too many", c.CommandPath(), args[len(names)])
		}
		return nil
	}
}
