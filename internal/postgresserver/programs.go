package postgresserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/keyhold/keyhold/internal/child"
)

// ErrMissing: there is no PostgreSQL on this machine.
var ErrMissing = errors.New("no PostgreSQL found (initdb): install it (Debian: apt-get install postgresql), or name the folder of its programs in KEYHOLD_POSTGRES_BIN")

var debian = "/usr/lib/postgresql/*/bin/initdb" // a variable for tests

// programs gives the folder of initdb, postgres and pg_basebackup.
func programs() (string, error) {
	if named := os.Getenv("KEYHOLD_POSTGRES_BIN"); named != "" {
		if _, err := exec.LookPath(filepath.Join(named, "initdb")); err != nil {
			return "", fmt.Errorf("KEYHOLD_POSTGRES_BIN: %w", err)
		}
		return named, nil
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil { // beside the link the others may be missing
			return filepath.Dir(path), nil
		}
	}
	found, _ := filepath.Glob(debian)
	slices.SortFunc(found, func(a, b string) int { return version(b) - version(a) })
	if len(found) == 0 {
		return "", ErrMissing
	}
	return filepath.Dir(found[0]), nil
}

// version is the 15 of /usr/lib/postgresql/15/bin/initdb.
func version(initdb string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(initdb))))
	return n
}

// whom gives the user as whom the server runs: nil for ourselves.
func whom() (*child.User, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		return &child.User{UID: uint32(uid), GID: uint32(gid)}, err
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor nobody: run this as somebody else")
}
