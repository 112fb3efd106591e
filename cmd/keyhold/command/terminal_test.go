package command

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"unicode"
)

// What comes from a store is text and nothing else, whatever it holds: on a terminal the only escapes are the command's own.
func TestHostileContentIsShownAndNotObeyed(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"status", "partitions ls shipping", "partitions ls shipping -o wide", "partitions show shipping " + hostile, "why order " + hostile,
		"partitions retry shipping " + hostile + " --dry-run", "partitions skip shipping " + hostile + " --reason \x1b[2Jx --actor \x1b]0;me\a", "audit", "audit -o wide",
		"partitions show shipping " + hostile, "events cat order " + hostile, "partitions retry shipping " + hostile + " --expect 1", "partitions show \x1b[31m x", "\x1b[31mstatus", "status --\x1b[31m",
		"partitions ls shipping -o json", "audit -o json", "events cat order " + hostile + " -o json",
	} {
		d := setup(t)
		if strings.HasPrefix(line, "audit") {
			d.run(t, "partitions", "skip", "shipping", hostile, "--reason", "\x1b[2Jx", "--actor", "\x1b]0;me\a")
		}
		var out, errs bytes.Buffer
		d.terminal[&out] = terminal{is: true, width: 120, height: 50}
		d.runTo(t, &out, &errs, words(line)...)
		for stream, text := range map[string]string{"out": out.String(), "err": errs.String()} {
			for _, own := range dyes {
				text = strings.ReplaceAll(text, own, "")
			}
			text = strings.ReplaceAll(text, "\x1b[0m", "")
			for _, r := range text {
				if r != '\n' && !unicode.IsPrint(r) {
					t.Errorf("%q: %U on %s:\n%q", line, r, stream, text)
					break
				}
			}
		}
		if out.Len()+errs.Len() == 0 {
			t.Errorf("%q shows nothing", line)
		}
	}
}

func TestColoursAreForTerminalsThatWantThem(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		is   bool
		vars map[string]string
		args []string
		want bool
	}{
		"a terminal":            {true, nil, nil, true},
		"no terminal":           {false, nil, nil, false},
		"NO_COLOR":              {true, map[string]string{"NO_COLOR": "1"}, nil, false},
		"--no-color":            {true, nil, []string{"--no-color"}, false},
		"a terminal of no kind": {true, map[string]string{"TERM": "dumb"}, nil, false},
		"a document":            {true, nil, []string{"-o", "json"}, false},
	} {
		d := setup(t)
		for k, v := range c.vars {
			d.vars[k] = v
		}
		var out, errs bytes.Buffer
		d.terminal[&out] = terminal{is: c.is, width: 120}
		d.runTo(t, &out, &errs, append([]string{"status"}, c.args...)...)
		if got := strings.Contains(out.String(), "\x1b["); got != c.want {
			t.Errorf("%s: colours are %v:\n%s", name, got, out.String())
		}
	}
}

// asked runs a command at a terminal where somebody types.
func (d *desktop) asked(t *testing.T, types string, args ...string) result {
	t.Helper()
	in := strings.NewReader(types)
	d.in = in
	d.terminal[in] = terminal{is: true}
	return d.run(t, args...)
}

func TestWhatIsHardToUndoIsConfirmedByTyping(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line, types string
		code        int
	}{
		{"dlq purge shipping --all --reason old", "shipping\n", ExitOK},
		{"dlq purge shipping --all --reason old", "yes\n", ExitError},
		{"dlq purge shipping --all --reason old", "", ExitError},
		{"dlq purge shipping client-1 1 --reason old", "yes\n", ExitError},
		{"dlq replay shipping --all", "yes\n", ExitOK},
		{"dlq replay shipping --all", "no\n", ExitError},
		{"dlq replay shipping client-1 1", "", ExitOK}, // one alone is not asked about
		{"partitions skip shipping --all --reason old", "yes\n", ExitOK},
		{"partitions skip shipping --all --reason old", "\n", ExitError},
		{"handlers rm clients --reason old", "clients\n", ExitOK},
		{"handlers rm clients --reason old", "yes\n", ExitError},
		{"handlers rename clients customers --reason old", "clients\n", ExitOK},
		{"handlers reset clients --from now --reason old", "client\n", ExitError},
		{"handlers reset clients --from now --reason old --dry-run", "", ExitOK}, // and so is what does nothing
	} {
		d := setup(t)
		r := d.asked(t, c.types, words(c.line)...)
		if r.code != c.code {
			t.Errorf("%s, typed %q: exit %d, want %d\n%s%s", c.line, c.types, r.code, c.code, r.out, r.err)
		}
		if c.code == ExitError && (!strings.Contains(r.err, "not confirmed: nothing was done") || r.out != "") {
			t.Errorf("%s, typed %q: says\n%s%s", c.line, c.types, r.out, r.err)
		}
		acts := d.run(t, "audit")
		if done := !strings.HasPrefix(acts.out, "Nobody"); done != (c.code == ExitOK && !strings.Contains(c.line, "--dry-run")) {
			t.Errorf("%s, typed %q: acts are\n%s", c.line, c.types, acts.out)
		}
	}
}

type brokenReader struct{}

func (*brokenReader) Read([]byte) (int, error) { return 0, os.ErrPermission }

func TestAnAnswerThatCannotBeReadIsNone(t *testing.T) {
	t.Parallel()
	d := setup(t)
	in := &brokenReader{}
	d.in, d.terminal[in] = in, terminal{is: true}
	if r := d.run(t, "dlq", "replay", "shipping", "--all"); r.code != ExitError || !strings.Contains(r.err, "permission") {
		t.Errorf("%+v", r)
	}
}

// A script gets one document on the output stream, whatever happens.
func TestJSONIsOneDocument(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"status", "partitions ls", "partitions ls clients --status halted", "partitions show shipping client-4", "partitions retry shipping client-4 --dry-run", "partitions retry shipping client-4",
		"partitions retry shipping client-4 --expect 7", "why order client-4", "dlq ls", "dlq ls --groups", "dlq ls clients --groups", "dlq show shipping client-1 1", "dlq replay shipping --all --yes", "dlq replay shipping --all --dry-run", "jobs ls",
		"handlers ls", "handlers pause clients", "events cat order client-4", "audit", "migrate status", "migrate up", "version",
	} {
		d := setup(t)
		r := d.run(t, append(words(line), "-o", "json")...)
		dec := json.NewDecoder(strings.NewReader(r.out))
		var document map[string]any
		if err := dec.Decode(&document); err != nil {
			t.Errorf("%s: %v:\n%s%s", line, err, r.out, r.err)
			continue
		}
		if err := dec.Decode(new(any)); err != io.EOF {
			t.Errorf("%s: something follows: %v", line, err)
		}
		if items, ok := document["items"]; ok && items == nil {
			t.Errorf("%s: a list is null", line)
		}
		for name := range document {
			if strings.ToLower(name) != name {
				t.Errorf("%s: the name %q", line, name)
			}
		}
	}
}
