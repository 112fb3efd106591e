package postgres

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// What is in a format that was released is in databases that nobody can reach: its script is never changed again, not even in a comment, and what
// comes after it is a script of its own. testdata/formats.sha256 holds the sum of each.
//
// A release with a new script adds its line, and its line alone:
//
//	go test ./eventstore/postgres -run TestReleasedFormatsAreFrozen -record-formats
//
// Until it is released, a script may change: take its line out, and record it again. It is no way to get rid of a failure for one that was.
var recordFormats = flag.Bool("record-formats", false, "add the sums of formats that have none to testdata/formats.sha256")

const formatSums = "testdata/formats.sha256"

// frozen gives the sums that were recorded, by script.
func frozen(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(formatSums)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok || all[name] != "" {
			t.Fatalf("%s: line %q is none, or is there twice", formatSums, line)
		}
		all[name] = sum
	}
	return all
}

// thaw compares scripts with their sums; what has none comes back with one.
func thaw(scripts []format, frozen map[string]string) (changed []string, added map[string]string) {
	added = map[string]string{}
	there := map[string]bool{}
	for _, f := range scripts {
		there[f.name] = true
		sum := fmt.Sprintf("%x", sha256.Sum256([]byte(strings.ReplaceAll(f.script, "\r\n", "\n"))))
		switch was := frozen[f.name]; was {
		case "":
			added[f.name] = sum
		case sum:
		default:
			changed = append(changed, f.name+" is not what was released: leave it alone, and write the next script")
		}
	}
	for name := range frozen {
		if !there[name] {
			changed = append(changed, name+" was released, and is gone")
		}
	}
	return changed, added
}

func TestReleasedFormatsAreFrozen(t *testing.T) {
	scripts, err := formats(migrations)
	if err != nil {
		t.Fatal(err)
	}
	sums := frozen(t)
	changed, added := thaw(scripts, sums)
	for _, c := range changed {
		t.Error(c)
	}
	if *recordFormats && len(changed) == 0 {
		write(t, scripts, sums, added)
		return
	}
	for name := range added {
		t.Errorf("%s has no line: when it is released, add it with -record-formats", name)
	}
}

func write(t *testing.T, scripts []format, was, added map[string]string) {
	t.Helper()
	var text strings.Builder
	for _, f := range scripts {
		fmt.Fprintf(&text, "%s  %s\n", was[f.name]+added[f.name], f.name)
	}
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(formatSums, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestAScriptThatChangedIsFound(t *testing.T) {
	t.Parallel()
	was := []format{{name: "1.sql", script: "CREATE TABLE a (x)\n"}, {name: "2.sql", script: "CREATE TABLE b (x)\n"}}
	_, sums := thaw(was, nil)
	if changed, added := thaw(was, sums); len(changed) > 0 || len(added) > 0 {
		t.Errorf("nothing changed, and found were %q, %v", changed, added)
	}
	checkedOut := []format{{name: "1.sql", script: "CREATE TABLE a (x)\r\n"}, was[1]}
	if changed, _ := thaw(checkedOut, sums); len(changed) > 0 {
		t.Errorf("other ends of lines: %q", changed)
	}
	now := []format{{name: "1.sql", script: "CREATE TABLE a (y)\n"}, {name: "3.sql"}}
	changed, added := thaw(now, sums)
	if len(changed) != 2 || !strings.HasPrefix(changed[0], "1.sql is not") || !strings.HasPrefix(changed[1], "2.sql was released") || added["3.sql"] == "" {
		t.Errorf("found were %q, %v", changed, added)
	}
}
