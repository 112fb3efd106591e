package arch

import (
	"bytes"
	"fmt"
	"regexp"
)

// foreign is what has no place in a text file of the repository.
var foreign = []struct {
	pattern *regexp.Regexp
	why     string
}{
	{regexp.MustCompile(`(?m)(?:^|[^\w.\n])/(root|home|tmp)/[a-z]`), "is a path of one machine"},
	{regexp.MustCompile(`\b(TODO|FIXME|XXX)\b`), "promises what is not there: do it, or leave it out"},
	{regexp.MustCompile(`(?m)^(<{7}|>{7}) `), "is left of a merge"},
}

// checkWords finds such words in one text file.
func checkWords(name string, text []byte) []string {
	var faults []string
	for _, w := range foreign {
		for _, at := range w.pattern.FindAllIndex(text, -1) {
			line := 1 + bytes.Count(text[:at[0]], []byte("\n"))
			faults = append(faults, fmt.Sprintf("%s:%d: %q %s", name, line, text[at[0]:at[1]], w.why))
		}
	}
	return faults
}

// isText: binary files hold a zero byte early, as git has it.
func isText(content []byte) bool {
	return bytes.IndexByte(content[:min(len(content), 8000)], 0) < 0
}
