package command

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// docs/cli.md is what the commands say of themselves. Write it anew with: go test ./cmd/keyhold/command -run TestReference -update
func TestReferenceIsUpToDate(t *testing.T) {
	t.Parallel()
	const file = "../../../docs/cli.md"
	got := reference(New(Options{}))
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("docs/cli.md is not what the commands say (write it anew with: make generate):\n%s", diff)
	}
}

// Whatever an operator may meet is explained: no command and no flag is without its line.
func TestEveryCommandAndFlagIsExplained(t *testing.T) {
	t.Parallel()
	walk(New(Options{}), func(c *cobra.Command) {
		if c.Short == "" {
			t.Errorf("%s says nothing of itself", c.CommandPath())
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s says nothing of itself", c.CommandPath(), f.Name)
			}
		})
	})
}

func walk(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, child := range c.Commands() {
		walk(child, visit)
	}
}

func reference(root *cobra.Command) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("<!-- Written by a test of cmd/keyhold/command; `make generate` writes it anew. -->\n")
	line("# The command `%s`\n", root.Name())
	line("%s\n", reflow(root.Long))
	line("```\ngo install github.com/keyhold/keyhold/cmd/keyhold@latest\n```\n")
	line("An application may carry the command in its own program instead, over the store that it opens: see package `cmd/keyhold/command`.\n")
	line("## What all commands share\n")
	flagTable(line, root.PersistentFlags())
	line(`| variable | |
|---|---|
| `+"`KEYHOLD_DB`"+` | the store, where there is no `+"`--db`"+`. Set it where the URL has a password: a `+"`--db`"+` stands in the commands that are offered, with `+"`xxxxx`"+` for the password |
| `+"`KEYHOLD_ACTOR`"+` | who acts, where there is no `+"`--actor`"+`; else your name at the system |
| `+"`NO_COLOR`"+` | no colours |

With `+"`-o json`"+` a command prints one document with names that stay. A list is `+"`{\"items\": […], \"next\": \"…\"}`"+`; with a `+"`next`"+` there are more, which `+"`--after`"+`
gets. With `+"`--watch`"+` it prints one document a line, whenever there is something new. Times are UTC. What comes from the store is
escaped before it reaches a terminal.

| exit code | |
|---|---|
| %d | it worked; for `+"`status`"+`: all is well |
| %d | it did not work; for a job that was waited for: something failed |
| %d | the command line says nothing that could be done |
| %d | there is no such handler, key, job, dead letter or file |
| %d | the state does not allow it: it has moved since it was looked at, or a program has the store in use. The present state is shown |
| %d | `+"`status`"+` alone: something waits for a person, or nobody works on what is there to do |
`, ExitOK, ExitError, ExitUsage, ExitNotFound, ExitMoved, ExitDegraded)
	line("## Commands\n")
	walk(root, func(c *cobra.Command) {
		if c != root && c.Name() != "help" && c.Name() != "completion" && !c.Hidden {
			line("- [`%s`](#%s) %s", c.CommandPath(), strings.ReplaceAll(c.CommandPath(), " ", "-"), c.Short)
		}
	})
	line("- `%s completion bash|fish|powershell|zsh` Print a script that completes commands, and what is in the store, in that shell", root.Name())
	walk(root, func(c *cobra.Command) {
		if c == root || c.Name() == "help" || c.Name() == "completion" || c.Hidden {
			return
		}
		line("\n## %s\n", c.CommandPath())
		if c.Long != "" {
			line("%s", reflow(c.Long))
		} else {
			line("%s.", c.Short)
		}
		if c.HasSubCommands() {
			return
		}
		line("\n```\n%s\n```", c.UseLine())
		if c.Example != "" {
			line("\nFor example:\n\n```\n%s\n```", unindent(c.Example))
		}
		if flags := c.LocalNonPersistentFlags(); flags.HasAvailableFlags() {
			line("")
			flagTable(line, flags)
		}
	})
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func flagTable(line func(string, ...any), flags *pflag.FlagSet) {
	line("| flag | |\n|---|---|")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		kind, usage := pflag.UnquoteUsage(f)
		if kind != "" {
			name += " " + kind
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" {
			usage += " (default " + f.DefValue + ")"
		}
		line("| `%s` | %s |", name, strings.ReplaceAll(usage, "|", `\|`))
	})
	line("")
}

// reflow leaves the width of lines to whoever shows them.
func reflow(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		paragraphs[i] = strings.ReplaceAll(p, "\n", " ")
	}
	return strings.Join(paragraphs, "\n\n")
}

func unindent(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}
