// Package frozen tests that what was released does not change. The script of a format that was released has run on databases that nobody can reach: it
// is never changed again, not even in a comment, and what comes after it is a script of its own. testdata/formats.sha256, beside the test, holds the sum of each.
package frozen

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

var record = flag.Bool("record-formats", false, "add the sums of formats that have none to "+sums)

const sums = "testdata/formats.sha256"

// Scripts compares the scripts of migrations/ with their sums. A release with a new script adds its line, and its line alone, by running the test with -record-formats.
//
// Until it is released, a script may change: take its line out, and record it again. It is no way to get rid of a failure for one that was.
func Scripts(t *testing.T, migrations fs.FS) {
	t.Helper()
	names, err := fs.Glob(migrations, "migrations/*.sql") // sorted
	if err == nil && len(names) == 0 {
		err = errors.New("there is no script")
	}
	if err != nil {
		t.Fatal(err)
	}
	scripts := map[string]string{}
	for _, name := range names {
		text, err := fs.ReadFile(migrations, name)
		if err != nil {
			t.Fatal(err)
		}
		scripts[name] = string(text)
	}
	text, err := os.ReadFile(sums)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	was, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	changed, added := compare(scripts, was)
	for _, c := range changed {
		t.Error(c)
	}
	if *record && len(changed) == 0 {
		write(t, names, was, added)
		return
	}
	for name := range added {
		t.Errorf("%s has no line in %s: when it is released, add it with -record-formats", name, sums)
	}
}

// parse reads what was recorded: sums by script.
func parse(text string) (map[string]string, error) {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok || all[name] != "" {
			return nil, fmt.Errorf("%s: line %q is none, or is there twice", sums, line)
		}
		all[name] = sum
	}
	return all, nil
}

// compare compares scripts with their sums; what has none comes back with one.
func compare(scripts, was map[string]string) (changed []string, added map[string]string) {
	added = map[string]string{}
	for name, script := range scripts {
		sum := fmt.Sprintf("%x", sha256.Sum256([]byte(strings.ReplaceAll(script, "\r\n", "\n"))))
		switch was[name] {
		case "":
			added[name] = sum
		case sum:
		default:
			changed = append(changed, name+" is not what was released: leave it alone, and write the next script")
		}
	}
	for name := range was {
		if _, there := scripts[name]; !there {
			changed = append(changed, name+" was released, and is gone")
		}
	}
	return changed, added
}

func write(t *testing.T, names []string, was, added map[string]string) {
	t.Helper()
	var text strings.Builder
	for _, name := range names {
		fmt.Fprintf(&text, "%s  %s\n", was[name]+added[name], name)
	}
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(sums, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
