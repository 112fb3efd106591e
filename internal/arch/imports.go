package arch

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// rowOf finds the most exact row for a package.
func rowOf(table []row, pkg string) (row, bool) {
	var best row
	found := false
	for _, r := range table {
		if covers(r.path, pkg) && (!found || len(r.path) > len(best.path)) {
			best, found = r, true
		}
	}
	return best, found
}

// covers reports whether a path of the table stands for a package.
func covers(rowPath, pkg string) bool {
	tree, ok := strings.CutSuffix(rowPath, "/...")
	if !ok {
		return rowPath == pkg
	}
	return pkg == tree || strings.HasPrefix(pkg, tree+"/")
}

// checkTable finds rows that contradict one another or the source.
func checkTable(table []row, existing []string) []string {
	var faults []string
	byPath := map[string]row{}
	for _, r := range table {
		if _, ok := byPath[r.path]; ok {
			faults = append(faults, fmt.Sprintf("layers.go: %q has two rows", r.path))
		}
		byPath[r.path] = r
	}
	for _, r := range table {
		if r.why == "" {
			faults = append(faults, fmt.Sprintf("layers.go: %q has no reason", r.path))
		}
		for _, use := range r.uses {
			switch below, ok := byPath[use]; {
			case !ok:
				faults = append(faults, fmt.Sprintf("layers.go: %q uses %q, which has no row", r.path, use))
			case below.kit:
				faults = append(faults, fmt.Sprintf("layers.go: %q uses the test kit %q", r.path, use))
			case below.layer > r.layer, below.layer == r.layer && !sharedByAdapters(below):
				faults = append(faults, fmt.Sprintf("layers.go: %q uses %q, which is not below it", r.path, use))
			}
		}
		if name := path.Base(strings.TrimSuffix(r.path, "/...")); strings.HasSuffix(name, "test") && !r.kit {
			faults = append(faults, fmt.Sprintf("layers.go: %q is named like a test kit: say kit: true", r.path))
		}
		exists := slices.ContainsFunc(existing, func(pkg string) bool {
			own, _ := rowOf(table, pkg)
			return own.path == r.path
		})
		switch {
		case !exists && !r.plan:
			faults = append(faults, fmt.Sprintf("layers.go: %q does not exist: remove its row, or say plan: true", r.path))
		case exists && r.plan:
			faults = append(faults, fmt.Sprintf("layers.go: %q exists: remove plan: true", r.path))
		}
	}
	for _, pkg := range existing {
		if _, ok := rowOf(table, pkg); !ok {
			faults = append(faults, fmt.Sprintf("package %q is not in the table of internal/arch/layers.go: add it, with its layer, what it may import and why", pkg))
		}
	}
	return faults
}

// sharedByAdapters: what two adapters of one port have in common is internal, and stands beside them.
func sharedByAdapters(r row) bool {
	return r.layer == adapters && strings.HasPrefix(r.path, "internal/")
}

// checkImports finds arrows that the tables do not allow. Packages without a row are checkTable's.
func checkImports(m *module, table []row, deps []dependency) []string {
	var faults []string
	for _, f := range m.files {
		from, ok := rowOf(table, f.pkg)
		if !ok {
			continue
		}
		for _, im := range f.imports() {
			var why string
			switch target, own := within(m.path, im.path); {
			case own:
				why = refuseOwn(table, from, f, target)
			case !standard(im.path):
				why = refuseForeign(deps, from, f, im.path)
			}
			if why != "" {
				faults = append(faults, fmt.Sprintf("%s: %s", m.at(im.spec), why))
			}
		}
	}
	return faults
}

// within gives the folder of a package of this module.
func within(modulePath, importPath string) (pkg string, ok bool) {
	if importPath == modulePath {
		return ".", true
	}
	return strings.CutPrefix(importPath, modulePath+"/")
}

func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

// refuseOwn says why f may not import target, "" when it may.
func refuseOwn(table []row, from row, f *file, target string) string {
	to, ok := rowOf(table, target)
	switch {
	case !ok:
		return fmt.Sprintf("imports %q, which has no row", target)
	case to.path == from.path:
		return ""
	case f.test || from.kit:
		// Tests and kits reach as far as their layer, and every adapter and kit of a port.
		if to.layer <= max(from.layer, adapters) {
			return ""
		}
		return fmt.Sprintf("test or kit of %q imports %q, which is above it", from.path, to.path)
	case to.kit:
		return fmt.Sprintf("production code of %q imports the test kit %q", from.path, to.path)
	case slices.Contains(from.uses, to.path):
		return ""
	}
	return fmt.Sprintf("%q may not import %q (%s): see internal/arch/layers.go", from.path, to.path, from.why)
}

// refuseForeign says why f may not import a package of another module, "" when it may.
func refuseForeign(deps []dependency, from row, f *file, importPath string) string {
	var d dependency // the deepest that has the package: a module may lie within another's path
	for _, other := range deps {
		if covers(other.module+"/...", importPath) && len(other.module) > len(d.module) {
			d = other
		}
	}
	for _, in := range d.in {
		if in == "tests" && (f.test || from.kit) || covers(in, f.pkg) {
			return ""
		}
	}
	if d.module != "" {
		return fmt.Sprintf("%q may not import %s: %s (internal/arch/modules.go)", f.pkg, d.module, d.why)
	}
	return fmt.Sprintf("imports %s, a dependency that nobody decided on: see docs/adr/0002 and internal/arch/modules.go", importPath)
}
