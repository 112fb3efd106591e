package arch

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository is where the module begins.
func repository(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// goMod is what `go mod edit -json` says of a go.mod file.
type goMod struct {
	Module  struct{ Path string }
	Require []struct {
		Path     string
		Version  string
		Indirect bool
	}
	Tool []struct{ Path string }
}

func readGoMod(t *testing.T, name string) goMod {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", name).Output()
	if err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
	var m goMod
	if err := json.Unmarshal(out, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func loadRepository(t *testing.T) *module {
	t.Helper()
	root := repository(t)
	m, err := load(root, readGoMod(t, filepath.Join(root, "go.mod")).Module.Path)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.files) < 20 {
		t.Fatalf("found %d Go files: this is not the whole module", len(m.files))
	}
	return m
}

// source makes a module named "m" of files given as name and text in turn.
func source(t *testing.T, nameAndText ...string) *module {
	t.Helper()
	m := newModule("m")
	for i := 0; i < len(nameAndText); i += 2 {
		if err := m.add(nameAndText[i], []byte(nameAndText[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func report(t *testing.T, faults []string) {
	t.Helper()
	for _, f := range faults {
		t.Error(f)
	}
}

// expect checks that there is one fault for each of wanted, which holds it.
func expect(t *testing.T, faults []string, wanted ...string) {
	t.Helper()
	for i, w := range wanted {
		if i >= len(faults) || !strings.Contains(faults[i], w) {
			t.Errorf("want fault %d to hold %q", i, w)
		}
	}
	if len(faults) != len(wanted) || t.Failed() {
		t.Errorf("want %d faults, got %d: %s", len(wanted), len(faults), strings.Join(faults, "\n  "))
	}
}

// listed gives the files that git tracks or would track.
func listed(t *testing.T, root string) []string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		t.Skip("not a clone: which files belong to the repository is not known")
	}
	// The clone may belong to another user, as it does in a container.
	cmd := exec.CommandContext(t.Context(), "git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}
