package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// module is the parsed Go source of one module, without the modules nested in it.
type module struct {
	path  string // as in go.mod
	fset  *token.FileSet
	files []*file
}

// file is one Go file. All paths are relative to the module's root and use slashes.
type file struct {
	path      string
	pkg       string // folder; "." is the root
	test      bool   // a _test.go file
	generated bool
	lines     int
	ast       *ast.File
}

func newModule(path string) *module { return &module{path: path, fset: token.NewFileSet()} }

// packages are the folders that hold Go files, sorted.
func (m *module) packages() []string {
	var all []string
	for _, f := range m.files {
		all = append(all, f.pkg)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// at is the place of a node, as an editor understands it.
func (m *module) at(n ast.Node) string {
	p := m.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

func (m *module) add(name string, source []byte) error {
	parsed, err := parser.ParseFile(m.fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	m.files = append(m.files, &file{
		path:      name,
		pkg:       path.Dir(name),
		test:      strings.HasSuffix(name, "_test.go"),
		generated: ast.IsGenerated(parsed),
		lines:     strings.Count(string(source), "\n"),
		ast:       parsed,
	})
	return nil
}

// load parses the module at root. Like the go command it leaves out nested modules, testdata and folders whose name begins
// with a dot or an underscore.
func load(root, modulePath string) (*module, error) {
	m := newModule(modulePath)
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if rel == "." {
				return nil
			}
			if base := d.Name(); base == "testdata" || base[0] == '.' || base[0] == '_' {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return m.add(filepath.ToSlash(rel), source)
	})
	return m, err
}

// imported is one import declaration.
type imported struct {
	spec *ast.ImportSpec
	path string
}

func (f *file) imports() []imported {
	var all []imported
	for _, spec := range f.ast.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			all = append(all, imported{spec, p})
		}
	}
	return all
}

// localName is the name by which f knows an imported package, "" when f does not import it. The package's own name must be
// the last element of its path.
func (f *file) localName(importPath string) string {
	for _, im := range f.imports() {
		if im.path != importPath {
			continue
		}
		if im.spec.Name != nil {
			return im.spec.Name.Name
		}
		return path.Base(importPath)
	}
	return ""
}

// refersTo reports whether n is the selector pkg.name of an imported package, for one of names.
func (f *file) refersTo(n ast.Node, importPath string, names ...string) bool {
	sel, ok := n.(*ast.SelectorExpr)
	if !ok || !slices.Contains(names, sel.Sel.Name) {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == f.localName(importPath)
}
