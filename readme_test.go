package keyhold_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestREADMEProgramPrintsWhatTheREADMESays builds the README's program as a newcomer would: in a module of its own. Its requirements are
// those of this module, so that no version is looked up.
func TestREADMEProgramPrintsWhatTheREADMESays(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	section := regexp.MustCompile("(?s)## A first program\n.*?```go\n(.*?)```.*?```\n(.*?)```").FindSubmatch(readme)
	if section == nil {
		t.Fatal("README.md has no first program with its output")
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	own := strings.Replace(string(mod), "module github.com/keyhold/keyhold", "module shop", 1) +
		"\nrequire github.com/keyhold/keyhold v0.0.0\nreplace github.com/keyhold/keyhold => " + here + "\n"
	sum, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"go.mod": own, "go.sum": string(sum), "main.go": string(section[1])} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "run", ".")
	cmd.WaitDelay = 10 * time.Second
	cmd.Dir = dir
	var errs strings.Builder
	cmd.Stderr = &errs
	got, err := cmd.Output()
	if err != nil {
		t.Fatalf("go run: %v\n%s", err, errs.String())
	}
	if d := cmp.Diff(string(section[2]), string(got)); d != "" {
		t.Errorf("the output is not what the README says (-README +program):\n%s\n%s", d, errs.String())
	}
}
