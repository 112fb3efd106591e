// Command licences reports the licence of every module that a module's packages and tests link, as found in the module's
// files, and fails when one is missing, not recognised or not among those that Keyhold accepts. It asks no network.
//
//	go run -C tools ./licences ..
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/google/licensecheck"
)

// accepted are the licences under which Keyhold takes what its users will link, acceptedInTests those of what only its own
// tests link.
var (
	accepted        = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}
	acceptedInTests = append([]string{"MPL-2.0"}, accepted...)
)

// decided are modules that users link under MPL-2.0, which reaches only changes to its own files: memberlist, and what it links (docs/adr/0002).
var decided = []string{
	"github.com/hashicorp/errwrap", "github.com/hashicorp/go-immutable-radix", "github.com/hashicorp/go-multierror", "github.com/hashicorp/go-sockaddr",
	"github.com/hashicorp/golang-lru", "github.com/hashicorp/memberlist",
}

// enough is the part of a file, in percent of its words, that must be the text of known licences.
const enough = 75

// module is what `go list` says of one.
type module struct {
	Path    string
	Version string
	Dir     string
	Main    bool
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: licences DIR, where DIR is a module")
	}
	modules, err := linked(args[0], "-test")
	if err != nil {
		return err
	}
	users, err := linked(args[0])
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	var faults []error
	for _, m := range modules {
		allow, note := accepted, ""
		if !slices.Contains(users, m) {
			allow, note = acceptedInTests, "\tin tests only"
		} else if slices.Contains(decided, m.Path) {
			allow = acceptedInTests
		}
		ids, err := identify(m.Dir, allow)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s %s: %w", m.Path, m.Version, err))
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%s%s\n", m.Path, m.Version, strings.Join(ids, ", "), note)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return errors.Join(faults...)
}

// linked lists the modules of others whose packages are linked into the packages of the module in dir; with "-test",
// into its tests too.
func linked(dir string, flags ...string) ([]module, error) {
	args := append([]string{"list", "-deps", "-json=Module"}, flags...)
	cmd := exec.Command("go", append(args, "./...")...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	list, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages of %s: %w", dir, err)
	}
	found := map[string]module{}
	for dec := json.NewDecoder(bytes.NewReader(list)); ; {
		var pkg struct{ Module *module }
		if err := dec.Decode(&pkg); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("list packages of %s: %w", dir, err)
		}
		if m := pkg.Module; m != nil && !m.Main {
			found[m.Path] = *m
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b module) int { return cmp.Compare(a.Path, b.Path) }), nil
}

// identify names the licences of the module in dir; an error says what a person has to look at.
func identify(dir string, allow []string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for _, e := range entries {
		if e.IsDir() || !isLicenceName(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		if err := judge(text, allow, ids); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, e.Name()), err)
		}
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("no licence file in %s", dir)
	}
	return slices.Sorted(maps.Keys(ids)), nil
}

func isLicenceName(name string) bool {
	base, ext, _ := strings.Cut(strings.ToUpper(name), ".")
	return ext != "GO" && slices.Contains([]string{"LICENSE", "LICENCE", "COPYING", "UNLICENSE"}, base)
}

// judge adds the licences found in text to ids, and refuses what is not allowed or not recognised.
func judge(text []byte, allow []string, ids map[string]bool) error {
	coverage := licensecheck.Scan(text)
	for _, m := range coverage.Match {
		if m.IsURL {
			continue // a mention
		}
		if !slices.Contains(allow, m.ID) {
			return fmt.Errorf("licence %s is not among those accepted (%s): do without the module, or decide on the licence in docs/adr/0002",
				m.ID, strings.Join(allow, ", "))
		}
		ids[m.ID] = true
	}
	if coverage.Percent < enough {
		return fmt.Errorf("only %.0f%% of the text is that of a known licence: read it, and decide on it in docs/adr/0002", coverage.Percent)
	}
	return nil
}
