package admin

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CommandLine is a line as it is typed in a shell: the command, which of its commands (such as "partitions retry"), flags with their
// values, arguments. A shell gives exactly these arguments back, whatever characters they have, and the command takes none for a flag.
func CommandLine(command, which string, flags []string, args ...string) string {
	dash := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") })
	if dash < 0 {
		dash = len(args)
	}
	words := slices.Concat(args[:dash], flags)
	if dash < len(args) {
		words = append(append(words, "--"), args[dash:]...)
	}
	line := command
	if which != "" {
		line += " " + which
	}
	for _, w := range words {
		line += " " + shellWord(w)
	}
	return line
}

// shellWord quotes an argument where a shell asks for it. What cannot be seen is written by its bytes, which are the same in every locale.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,…", r)
	}
	switch {
	case s != "" && s[0] != '=' && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0:
		return s
	case utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0:
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == '\'' || r == '\\':
			b.WriteString(`\` + s[:1])
		case r != '!' && r != utf8.RuneError && unicode.IsPrint(r): // ! is the history of an interactive shell
			b.WriteString(s[:size])
		default:
			for i := range size {
				fmt.Fprintf(&b, `\%03o`, s[i])
			}
		}
		s = s[size:]
	}
	return b.String() + "'"
}

// How the command is called for what words advise. Its arguments are those of package command.

var reasonFlag = []string{"--reason", "…"}

func (d *Desk) command(which string, flags []string, args ...string) string {
	return CommandLine(d.opts.Command, which, flags, args...)
}

func (d *Desk) cmdUnit(verb string, v *Unit, flags ...string) string {
	return d.command("partitions "+verb, flags, v.Handler, v.Key)
}

func (d *Desk) cmdHandler(verb, name string) string { return d.command("handlers "+verb, nil, name) }

func (d *Desk) cmdPartitions(handler, status string) string {
	return d.command("partitions ls", []string{"--handler", handler, "--status", status})
}

func (d *Desk) cmdDead(verb, handler, key string) string {
	flags := []string{"--handler", handler}
	if key != "" {
		flags = append(flags, "--key", key)
	}
	return d.command("dlq "+verb, flags)
}
