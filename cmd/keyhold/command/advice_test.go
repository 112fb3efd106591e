package command

import (
	"encoding/json"
	"strings"
	"testing"
)

// Whatever command line is offered to a person can be typed: the command is there, and takes those flags and arguments.
func TestCommandLinesThatAreOfferedCanBeTyped(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.run(t, "handlers", "pause", "clients")
	d.run(t, "partitions", "pause", "billing", "client-1")
	var lines []string
	for _, asked := range []string{"status", "why order client-4", "why order client-6", "why order client-5", "why clients client-12", "why billing client-1", "why order client-3"} {
		r := d.run(t, append(words(asked), "-o", "json")...)
		var document any
		if err := json.Unmarshal([]byte(r.out), &document); err != nil {
			t.Fatalf("%s: %v: %+v", asked, err, r)
		}
		lines = append(lines, offers(document)...)
	}
	if len(lines) < 10 {
		t.Errorf("only %q are offered", lines)
	}
	for _, line := range lines {
		root := newCommand(d.options, d.env)
		args := words(line)
		if args[0] != root.Name() {
			t.Errorf("%s: begins with %s", line, args[0])
		}
		c, rest, err := root.Find(args[1:])
		if err == nil {
			err = c.ParseFlags(rest)
		}
		if err == nil {
			err = c.ValidateArgs(c.Flags().Args())
		}
		if err != nil || c.HasSubCommands() {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// offers are the values called command in a document.
func offers(document any) (lines []string) {
	switch v := document.(type) {
	case map[string]any:
		for name, value := range v {
			if line, ok := value.(string); ok && name == "command" && strings.TrimSpace(line) != "" {
				lines = append(lines, line)
			}
			lines = append(lines, offers(value)...)
		}
	case []any:
		for _, value := range v {
			lines = append(lines, offers(value)...)
		}
	}
	return lines
}
