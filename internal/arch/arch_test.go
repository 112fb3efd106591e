package arch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestRepository(t *testing.T) {
	t.Parallel()
	m := loadRepository(t)
	for _, rule := range []struct {
		name   string
		faults []string
	}{
		{"every package has its row, and rows agree", checkTable(layers, m.packages())},
		{"arrows go down", checkImports(m, layers, dependencies)},
		{"every goroutine has an owner", checkGoroutines(m, layers, starters)},
		{"tests wait for signals", checkWaiting(m, layers, sleepers)},
		{"contexts are handed on", checkContexts(m, layers, keepers)},
		{"folders are named for things", checkFolders(m)},
		{"packages say what they are", checkPackageComments(m)},
		{"files can be read at one go", checkLengths(m, longFiles)},
	} {
		t.Run(rule.name, func(t *testing.T) {
			t.Parallel()
			report(t, rule.faults)
		})
	}
}

func TestTextsSpeakOfTheProjectAlone(t *testing.T) {
	t.Parallel()
	root := repository(t)
	for _, name := range listed(t, root) {
		if strings.HasPrefix(name, "internal/arch/words") {
			continue // the words themselves
		}
		content, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		if isText(content) {
			report(t, checkWords(name, content))
		}
	}
}

// What is imported, what the tables allow and what docs/adr/0002 answers for are the same modules.
func TestEveryDependencyWasDecidedOn(t *testing.T) {
	t.Parallel()
	root := repository(t)
	adr, err := os.ReadFile(filepath.Join(root, "docs/adr/0002-dependencies.md"))
	if err != nil {
		t.Fatal(err)
	}

	mod := readGoMod(t, filepath.Join(root, "go.mod"))
	m := loadRepository(t)
	imported := map[string]bool{}
	for _, f := range m.files {
		for _, im := range f.imports() {
			for _, r := range mod.Require {
				if covers(r.Path+"/...", im.path) {
					imported[r.Path] = true
				}
			}
		}
	}
	allowed := map[string]bool{}
	for _, d := range dependencies {
		allowed[d.module] = true
	}
	var direct []string
	for _, r := range mod.Require {
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	decided := firstColumn(string(adr), "Modules that Keyhold imports")
	sameSet(t, "imported by the source", keys(imported), "docs/adr/0002", decided)
	sameSet(t, "table in internal/arch/modules.go", keys(allowed), "docs/adr/0002", decided)
	sameSet(t, "direct requirements of go.mod", direct, "docs/adr/0002", decided)

	var tools []string
	for _, tool := range readGoMod(t, filepath.Join(root, "tools/go.mod")).Tool {
		tools = append(tools, tool.Path)
	}
	sameSet(t, "tools in tools/go.mod", tools, "docs/adr/0002", firstColumn(string(adr), "Tools"))
}

func TestEveryPackageIsOnTheMap(t *testing.T) {
	t.Parallel()
	design, err := os.ReadFile(filepath.Join(repository(t), "DESIGN.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range layers {
		name := strings.TrimSuffix(r.path, "/...")
		if !r.plan && !strings.Contains(string(design), "`"+name+"`") {
			t.Errorf("DESIGN.md does not say what %s is: give it a line in the map", name)
		}
	}
}

func TestEveryDecisionIsInTheIndex(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(repository(t), "docs/adr")
	index, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "[0-9]*.md"))
	if err != nil {
		t.Fatal(err)
	}
	var pages []string
	for _, f := range files {
		pages = append(pages, filepath.Base(f))
	}
	var linked []string
	for _, link := range regexp.MustCompile(`\]\((\d{4}-[^)]+)\)`).FindAllSubmatch(index, -1) {
		linked = append(linked, string(link[1]))
	}
	if len(pages) == 0 {
		t.Error("no decisions found")
	}
	sameSet(t, "docs/adr", pages, "its README.md", linked)
}

func keys(set map[string]bool) []string {
	var all []string
	for k := range set {
		all = append(all, k)
	}
	return all
}

func sameSet(t *testing.T, nameA string, a []string, nameB string, b []string) {
	t.Helper()
	for _, x := range a {
		if !slices.Contains(b, x) {
			t.Errorf("%s: in %s, not in %s", x, nameA, nameB)
		}
	}
	for _, x := range b {
		if !slices.Contains(a, x) {
			t.Errorf("%s: in %s, not in %s", x, nameB, nameA)
		}
	}
}
