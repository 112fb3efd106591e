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
	link   = regexp.MustCompile(`\]\(([^)#: ]*)(?:#([^)]*))?\)`)

	heading    = regexp.MustCompile(`(?m)^#+ (.*)$`)
	unlinkable = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestPagesShowWhatIsCompiledAndRun holds that each block of Go on a page is a part of a file that the tests compile: of one in this
// directory, or of the one that the block names, from the root of the repository (```go examples/orders/events.go). Blocks marked text are what a
// program prints, or an error says: they must be in such a file too, as a comment (of an Example's output, for instance) or a string.
// Pages are all but docs/cli.md, which is generated. Two have tests of their own for what they show, see builtOtherwise.
//
// Lines may be indented otherwise, since a page shows a part of a function as if it stood alone.
func TestPagesShowWhatIsCompiledAndRun(t *testing.T) {
	t.Parallel()
	here := sources(t, "*_test.go")
	shown := 0
	for _, page := range pages(t) {
		for _, block := range fenced.FindAllStringSubmatch(read(t, page), -1) {
			language, file, named := strings.Cut(block[1], " ")
			from := here
			if named && (language == "go" || language == "text") && !builtOtherwise(page, block[2]) {
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
			shown++
			if !builtOtherwise(page, block[2]) && !anyContains(from, flat(block[2])) {
				t.Errorf("%s: no file has this block, so nobody compiles it; put it into a test of this directory:\n%s", page, block[2])
			}
		}
	}
	if shown < 40 {
		t.Errorf("only %d blocks were found", shown)
	}
}

// builtOtherwise reports whether a test takes the block from the page itself: TestFirstProgramIsBuiltAsThePageSays,
// TestTheLogSaysOfAHaltWhatTheREADMESays, and, in the root of the repository, TestREADMEProgramPrintsWhatTheREADMESays.
func builtOtherwise(page, block string) bool {
	return page == "first-program.md" ||
		page == filepath.Join("..", "..", "README.md") && (strings.HasPrefix(block, "package main\n") || strings.HasPrefix(block, "level=ERROR "))
}

// pages are all that people read, but for what is generated.
func pages(t *testing.T) (all []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "../*.md", "../../*.md", "../adr/*.md", "../../examples/*/*.md"} {
		found, err := filepath.Glob(filepath.FromSlash(pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("no pages %s: %v", pattern, err)
		}
		all = append(all, found...)
	}
	return slices.DeleteFunc(all, func(page string) bool { return page == filepath.Join("..", "cli.md") })
}

// TestLinksLeadSomewhere holds that what a page links to is there, down to the heading.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		for _, to := range link.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, page), ""), -1) {
			target := page
			if to[1] != "" {
				target = filepath.Join(filepath.Dir(page), filepath.FromSlash(to[1]))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: a link leads nowhere: %v", page, err)
				continue
			}
			if to[2] != "" && !slices.Contains(headings(read(t, target)), to[2]) {
				t.Errorf("%s: %s has no heading %q", page, target, to[2])
			}
		}
	}
}

// headings are those of a page, as links name them.
func headings(page string) (all []string) {
	for _, h := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		all = append(all, strings.ReplaceAll(unlinkable.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-"))
	}
	return all
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
