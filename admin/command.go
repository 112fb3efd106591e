package admin

import "strings"

// How the command is called for what words advise. Its arguments are those of package command.

var reasonFlag = []string{"--reason", "…"}

func cmdUnit(verb string, v *Unit) []string { return []string{"partitions", verb, v.Handler, v.Key} }

func cmdHandler(verb, name string) []string { return []string{"handlers", verb, name} }

func cmdPartitions(handler, status string) []string {
	return []string{"partitions", "ls", "--handler", handler, "--status", status}
}

func cmdDead(verb, handler, key string) []string {
	args := []string{"dlq", verb, "--handler", handler}
	if key != "" {
		args = append(args, "--key", key)
	}
	return args
}

// command is a line as it is typed; arguments are quoted where a shell asks for it.
func (d *Desk) command(args ...string) string {
	line := d.opts.Command
	for _, a := range args {
		line += " " + shellWord(a)
	}
	return line
}

func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./@%+=,…", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
