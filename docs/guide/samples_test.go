package guide_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	fenced = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$")
	link   = regexp.MustCompile(`\]\(([^)#: ]+)(?:#[^)]*)?\)`)
)

// TestPagesShowWhatIsCompiledAndRun holds that each block of Go on a page of the guide is a part of a file that the tests compile: of one in this
// directory, or of the one that the block names, from the root of the repository (```go examples/orders/events.go). Blocks marked text are what a
// program prints, or an error says: they must be in such a file too, as a comment (of an Example's output, for instance) or a string.
//
// Lines may be indented otherwise, since a page shows a part of a function as if it stood alone.
func TestPagesShowWhatIsCompiledAndRun(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	here := sources(t, "*_test.go")
	for _, page := range pages {
		text := read(t, page)
		for _, block := range fenced.FindAllStringSubmatch(text, -1) {
			language, file, named := strings.Cut(block[1], " ")
			from := here
			if named {
				from = []string{flat(read(t, filepath.Join("..", "..", file)))}
			}
			switch language {
			case "go":
			case "text":
				from = slices.Clone(from)
				for i := range from {
					from[i] = uncommented(from[i])
				}
			default:
				continue
			}
			if !anyContains(from, flat(block[2])) {
				t.Errorf("%s: no file has this block, so nobody compiles it; put it into a test of this directory:\n%s", page, block[2])
			}
		}
		for _, to := range link.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.FromSlash(to[1])); err != nil {
				t.Errorf("%s: a link leads nowhere: %v", page, err)
			}
		}
	}
}

func sources(t *testing.T, pattern string) (all []string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f != "samples_test.go" {
			all = append(all, flat(read(t, f)))
		}
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// flat takes the indentation from each line, and leaves out empty ones.
func flat(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
	}
	return strings.Join(lines, "\n")
}

// uncommented shows what comments say.
func uncommented(flat string) string {
	var lines []string
	for line := range strings.Lines(flat) {
		lines = append(lines, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "//")))
	}
	return strings.Join(lines, "\n")
}

// anyContains reports whether the lines of a part stand one after the other, whole, in one of the texts.
func anyContains(texts []string, part string) bool {
	for _, text := range texts {
		if strings.Contains("\n"+text+"\n", "\n"+part+"\n") || part != "" && !strings.Contains(part, "\n") && strings.Contains(text, part) {
			return true
		}
	}
	return false
}

func TestABlockThatNoFileHasIsFound(t *testing.T) {
	t.Parallel()
	file := flat("func f() {\n\tif yes {\n\t\tdo(  it )\n\t}\n\n\tdone()\n\t// Output:\n\t// 7 carts\n}\n")
	for part, want := range map[string]bool{
		"if yes {\n    do( it )\n}\n": true, "done()": true, "do( it )\n}\ndone()": true, "if yes {\ndo( that )\n}": false, "}\n}": false, "yes {\ndo( it )": false,
	} {
		if got := anyContains([]string{file}, flat(part)); got != want {
			t.Errorf("%q is found: %v, want %v", part, got, want)
		}
	}
	if !anyContains([]string{uncommented(file)}, "7 carts") {
		t.Error("output is not found")
	}
}
