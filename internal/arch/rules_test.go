package arch

import (
	"strings"
	"testing"
)

// small is a table with one row of each kind.
var small = []row{
	{path: "word", layer: words, why: "leaf"},
	{path: "port", layer: ports, why: "port", uses: []string{"word"}},
	{path: "other", layer: ports, why: "port", uses: []string{"word"}},
	{path: "port/adapter/...", layer: adapters, why: "adapter", uses: []string{"word", "port"}},
	{path: "port/porttest", layer: adapters, why: "suite", kit: true},
	{path: "actor/...", layer: behavior, why: "actors", uses: []string{"word", "port"}},
	{path: ".", layer: facade, why: "root", uses: []string{"word", "port", "actor/..."}},
}

func TestAllowedArrowsAreNoFaults(t *testing.T) {
	t.Parallel()
	m := source(t,
		"port/a.go", `package port; import ("context"; "m/word")`,
		"port/adapter/a.go", `package adapter; import ("m/port"; "m/port/adapter/inner")`,
		"port/adapter/inner/a.go", `package inner; import "ext.org/db/driver"`,
		"port/porttest/a.go", `package porttest; import ("m/port"; "m/port/adapter"; "ext.org/compare")`,
		"actor/a_test.go", `package actor_test; import ("m/actor"; "m/port/adapter"; "m/port/porttest"; "ext.org/compare")`,
		"a.go", `package root; import "m/actor"`,
	)
	deps := []dependency{{"ext.org/db", []string{"port/adapter/..."}, "one"}, {"ext.org/compare", []string{"tests"}, "two"}}
	expect(t, checkImports(m, small, deps))
}

func TestArrowsThatAreFaults(t *testing.T) {
	t.Parallel()
	deps := []dependency{{"ext.org/db", []string{"port/adapter/..."}, "who does not use it does not link it"}, {"ext.org/compare", []string{"tests"}, "compares"}}
	for name, c := range map[string]struct{ file, imports, want string }{
		"up":                               {"word/a.go", "m/port", `a.go:1: "word" may not import "port"`},
		"between ports":                    {"port/a.go", "m/other", `"port" may not import "other"`},
		"from the root to an adapter":      {"a.go", "m/port/adapter", `"." may not import "port/adapter/..."`},
		"from actors to an adapter":        {"actor/a.go", "m/port/adapter/inner", `may not import "port/adapter/..."`},
		"from production code to a kit":    {"actor/a.go", "m/port/porttest", `production code of "actor/..." imports the test kit`},
		"from a test up":                   {"port/a_test.go", "m/actor", `test or kit of "port" imports "actor/...", which is above it`},
		"from a kit up":                    {"port/porttest/a.go", "m/actor", `which is above it`},
		"to a package without a row":       {"port/a.go", "m/stray", `imports "stray", which has no row`},
		"to a module in the wrong place":   {"actor/a.go", "ext.org/db/driver", `"actor" may not import ext.org/db: who does not use it does not link it`},
		"from production to a test module": {"actor/a.go", "ext.org/compare", `"actor" may not import ext.org/compare`},
		"to a module nobody decided on":    {"actor/a_test.go", "ext.org/compared", "nobody decided on"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := source(t, c.file, "package p; import _ \""+c.imports+"\"")
			expect(t, checkImports(m, small, deps), c.want)
		})
	}
}

func TestTableThatContradictsItself(t *testing.T) {
	t.Parallel()
	all := []string{".", "word", "port", "other", "port/adapter", "port/porttest", "actor/deep"}
	expect(t, checkTable(small, all))
	expect(t, checkTable(small, append(all, "stray")), `package "stray" is not in the table`)
	expect(t, checkTable(small, all[:len(all)-1]), `"actor/..." does not exist`)
	for name, c := range map[string]struct {
		row  row
		want string
	}{
		"planned, but there":      {row{path: "new", why: "w", plan: true}, "remove plan: true"},
		"without a reason":        {row{path: "new"}, "no reason"},
		"uses what has no row":    {row{path: "new", why: "w", uses: []string{"nothing"}}, "which has no row"},
		"uses what is above":      {row{path: "new", why: "w", uses: []string{"port"}}, "not below it"},
		"uses what is beside":     {row{path: "new", why: "w", layer: ports, uses: []string{"port"}}, "not below it"},
		"uses a kit":              {row{path: "new", why: "w", layer: facade, uses: []string{"port/porttest"}}, "uses the test kit"},
		"a kit that does not say": {row{path: "new/nicetest", why: "w"}, "kit: true"},
		"twice":                   {row{path: "word", layer: words, why: "w"}, "two rows"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			existing := all
			if c.row.path != "word" {
				existing = append([]string{c.row.path}, all...)
			}
			expect(t, checkTable(append([]row{c.row}, small...), existing), c.want)
		})
	}
}

func TestGoroutinesWithoutAnOwner(t *testing.T) {
	t.Parallel()
	m := source(t,
		"actor/a.go", "package actor\nfunc New() { go f() }",
		"actor/b.go", "package actor\nimport clock \"time\"\nfunc f() { clock.AfterFunc(1, f) }",
		"actor/c.go", "package actor\nimport \"sync\"\nfunc g() { var w sync.WaitGroup; w.Go(f) }",
		"actor/d.go", "package actor\nfunc h(g Group) { g.Go(f) }",
		"actor/a_test.go", "package actor\nfunc t() { go f() }",
		"port/porttest/a.go", "package porttest\nfunc t() { go f() }",
		"word/a.go", "package word\nfunc t() { go f() }",
	)
	expect(t, checkGoroutines(m, small, []exception{{"word", "it may"}}),
		"actor/a.go:2: starts a goroutine", "actor/b.go:3:", "actor/c.go:3:")
}

func TestTestsThatWaitForATime(t *testing.T) {
	t.Parallel()
	const wait = "package p\nimport \"time\"\nfunc t() {\n time.Sleep(1)\n <-time.After(1)\n <-time.Tick(1)\n <-time.NewTimer(1).C\n}"
	const virtual = "package p\nimport (\"time\"; \"testing/synctest\")\nfunc t() { synctest.Test(nil, func(any) { time.Sleep(1) }) }"
	m := source(t, "word/a_test.go", wait, "word/b_test.go", virtual, "word/a.go", wait, "port/porttest/a.go", wait, "port/a_test.go", wait)
	expect(t, checkWaiting(m, small, []exception{{"port/a_test.go", "child processes"}}),
		"word/a_test.go:4: a test waits", "word/a_test.go:5:", "word/a_test.go:6:", "word/a_test.go:7:",
		"porttest/a.go:4:", "porttest/a.go:5:", "porttest/a.go:6:", "porttest/a.go:7:")
}

func TestContextsKeptInStructs(t *testing.T) {
	t.Parallel()
	m := source(t,
		"word/a.go", "package word\nimport \"context\"\ntype kept struct { ctx context.Context }\nfunc f(ctx context.Context) {}",
		"word/b.go", "package word\nimport \"context\"\ntype kept struct { ctx context.Context }",
		"word/c.go", "package word\nimport \"context\"\ntype capability struct { context.Context }",
	)
	expect(t, checkContexts(m, small, []exception{{"word/b.go", "it may"}}), "word/a.go:3: field ctx keeps a context")
}

func TestExceptionsThatExceptNothing(t *testing.T) {
	t.Parallel()
	m := source(t, "word/a.go", "package word")
	unused := []exception{{"word/a.go", "once it was so"}}
	expect(t, checkGoroutines(m, small, unused), "exception for word/a.go (once it was so) excepts nothing")
	expect(t, checkWaiting(m, small, unused), "excepts nothing")
	expect(t, checkContexts(m, small, unused), "excepts nothing")
	expect(t, checkLengths(m, unused), "remove its exception")
	expect(t, checkLengths(m, []exception{{"word/gone.go", "w"}}), "no such file")
}

func TestFoldersThatSayNothing(t *testing.T) {
	t.Parallel()
	m := source(t, "port/util/a.go", "package util", "common/x/a.go", "package x", "port/utility/a.go", "package utility")
	expect(t, checkFolders(m), `package common/x: "common" says nothing`, `package port/util: "util" says nothing`)
}

func TestPackagesThatDoNotSayWhatTheyAre(t *testing.T) {
	t.Parallel()
	m := source(t,
		"a/a.go", "package a", "a/doc.go", "// Package a is.\npackage a",
		"b/b.go", "// Package b is.\npackage b", "b/b_test.go", "package b",
		"c/c.go", "package c",
		"d/d.go", "// Package d is.\npackage d", "d/doc.go", "// Package d is.\npackage d",
		"e/e.go", "// Package e is.\npackage e", "e/f.go", "package e",
		"g/main.go", "// Command g does.\npackage main", "g/flags.go", "package main",
		"f/f.pb.go", "// Code generated by x. DO NOT EDIT.\n\npackage f",
	)
	expect(t, checkPackageComments(m),
		"package c has no comment", "package d has its comment in several files", "e/e.go: the comment of a package of several files belongs in doc.go")
}

func TestFilesThatAreTooLong(t *testing.T) {
	t.Parallel()
	of := func(lines int) string { return "package p" + strings.Repeat("\n", lines) }
	m := source(t, "a.go", of(600), "b.go", of(601), "c.go", of(800), "d.go", of(801),
		"e.go", "// Code generated by x. DO NOT EDIT.\n\n"+of(900))
	expect(t, checkLengths(m, []exception{{"c.go", "one table"}, {"d.go", "no reason is enough"}}), "b.go has 601 lines", "d.go has 801 lines")
}

func TestWordsThatDoNotBelong(t *testing.T) {
	t.Parallel()
	// Put together here, so that this file need not be an exception.
	for _, bad := range []string{"see /ho" + "me/me", "in /ro" + "ot/go", "/t" + "mp/x", "// TO" + "DO: later", "<<<<<<" + "< HEAD"} {
		expect(t, checkWords("a.md", []byte("first\n"+bad+"\nlast")), "a.md:2: ")
	}
	for _, good := range []string{"/tmp/", "https://example.com/home/x", "the roots/abc"} {
		expect(t, checkWords("a.md", []byte(good)))
	}
	if isText([]byte("a\x00b")) || !isText([]byte("a b")) {
		t.Error("isText is wrong")
	}
}

func TestTablesInDocuments(t *testing.T) {
	t.Parallel()
	const text = "# T\n| `no` |\n## Tools\n\n| tool | why |\n|---|---|\n| `a/b` | `c` |\n| `d` | x |\n## More\n| `e` |\n"
	if got := strings.Join(firstColumn(text, "Tools"), " "); got != "a/b d" {
		t.Errorf("got %q", got)
	}
}

func TestLoadLeavesOutWhatIsNotOfTheModule(t *testing.T) {
	t.Parallel()
	m, err := load("testdata/module", "m")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range m.files {
		names = append(names, f.path)
	}
	if got, want := strings.Join(names, " "), "a.go b/b_test.go"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
