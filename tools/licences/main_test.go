package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const isc = `Copyright (c) 2026 Somebody

Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted,
provided that the above copyright notice and this permission notice appear in all copies.

THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED
WARRANTIES OF MERCHANTABILITY AND FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT, INDIRECT, OR
CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT,
NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF THIS SOFTWARE.
`

const mpl = `This Source Code Form is subject to the terms of the Mozilla Public License, v. 2.0. If a copy of the MPL was not distributed
with this file, You can obtain one at http://mozilla.org/MPL/2.0/.
`

func TestIdentify(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, text, want string }{
		"accepted":             {"LICENSE", isc, ""},
		"another spelling":     {"COPYING.txt", isc, ""},
		"not accepted":         {"LICENSE", mpl, "is not among those accepted"},
		"source code":          {"license.go", isc, "no licence file"},
		"not recognised":       {"LICENSE.md", "Ask me before you use it.", "0% of the text"},
		"no file of that name": {"README", isc, "no licence file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			ids, err := identify(dir, accepted)
			switch {
			case c.want == "" && (err != nil || strings.Join(ids, " ") != "ISC"):
				t.Errorf("got %v, %v, want ISC", ids, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, %v, want an error that holds %q", ids, err, c.want)
			}
		})
	}
}

func TestMoreIsAcceptedOfWhatOnlyTestsLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "LICENSE"), []byte(mpl), 0o600); err != nil {
		t.Fatal(err)
	}
	if ids, err := identify(dir, acceptedInTests); err != nil || strings.Join(ids, " ") != "MPL-2.0" {
		t.Errorf("got %v, %v, want MPL-2.0", ids, err)
	}
}

func TestRunListsWhatThisModuleLinks(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run([]string{"."}, &out); err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(out.String()); len(got) != 3 || got[0] != "github.com/google/licensecheck" || got[2] != "BSD-3-Clause" {
		t.Errorf("got %q", out.String())
	}
}
