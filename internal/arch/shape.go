package arch

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

const (
	longest = 800 // lines of a file
	long    = 600 // beyond which a file needs a reason
)

// longFiles are beyond 600 lines for a reason.
var longFiles []exception

// shapeless names say nothing of what is inside.
var shapeless = []string{"base", "common", "errors", "helpers", "impl", "manager", "misc", "mocks", "pkg", "shared", "types", "util", "utils"}

// checkFolders finds packages whose name says nothing.
func checkFolders(m *module) []string {
	var faults []string
	for _, pkg := range m.packages() {
		for name := range strings.SplitSeq(pkg, "/") {
			if slices.Contains(shapeless, name) {
				faults = append(faults, fmt.Sprintf("package %s: %q says nothing of what is inside: name the thing", pkg, name))
			}
		}
	}
	return faults
}

// checkPackageComments finds packages that do not say, in exactly one place, what they are. That place is doc.go, or main.go,
// as soon as a package has a second file.
func checkPackageComments(m *module) []string {
	var faults []string
	for _, pkg := range m.packages() {
		var files, with []string
		for _, f := range m.files {
			if f.pkg != pkg || f.test || f.generated {
				continue
			}
			files = append(files, f.path)
			if f.ast.Doc != nil {
				with = append(with, f.path)
			}
		}
		switch {
		case len(files) == 0: // generated or test files alone
		case len(with) == 0:
			faults = append(faults, fmt.Sprintf("package %s has no comment: write doc.go: what it is, promises, does not, reading order", pkg))
		case len(with) > 1:
			faults = append(faults, fmt.Sprintf("package %s has its comment in several files: %s", pkg, strings.Join(with, ", ")))
		case len(files) > 1 && !isDocFile(with[0]):
			faults = append(faults, fmt.Sprintf("%s: the comment of a package of several files belongs in doc.go", with[0]))
		}
	}
	return faults
}

// isDocFile: a program may say what it is beside its main function.
func isDocFile(name string) bool {
	return path.Base(name) == "doc.go" || path.Base(name) == "main.go"
}

// checkLengths finds files that no reader holds in mind.
func checkLengths(m *module, allowed []exception) []string {
	var faults []string
	for _, f := range m.files {
		if f.generated {
			continue
		}
		excepted := slices.ContainsFunc(allowed, func(e exception) bool { return e.where == f.path })
		switch {
		case f.lines > longest:
			faults = append(faults, fmt.Sprintf("%s has %d lines; %d is the end: split it", f.path, f.lines, longest))
		case f.lines > long && !excepted:
			faults = append(faults, fmt.Sprintf("%s has %d lines: split it, or say in internal/arch/shape.go why it is one thing", f.path, f.lines))
		case f.lines <= long && excepted:
			faults = append(faults, fmt.Sprintf("%s has %d lines: remove its exception", f.path, f.lines))
		}
	}
	for _, e := range allowed {
		if !slices.ContainsFunc(m.files, func(f *file) bool { return f.path == e.where }) {
			faults = append(faults, fmt.Sprintf("exception for %s (%s): there is no such file", e.where, e.why))
		}
	}
	return faults
}
