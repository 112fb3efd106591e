package admin_test

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/admin"
)

// hostile are arguments that a shell, a command or a terminal might take for something else.
var hostile = []string{
	"client-17", "-", "--", "-x", "--all", "--reason=x", "two words", " ", "it's", `a"b`, `back\slash`, "$HOME", "$(id)", "`id`", "a;b", "a|b&c", "*", "?[a]", "~", "~root",
	"=ls", "#5", "!!", "{a,b}", "new\nline", "tab\there", "it's\n!!\\", "client\u202e99", "zero\u200bwidth", "no\u00a0break", "\x1b[2J\x1b[31m", "\xff\xfe1", "küche", "日本語", "e\u0301", "🙂", "",
}

// Whoever copies a line that is advised types exactly what was meant.
func TestCommandLinesGiveTheirArgumentsBack(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Log("no bash: lines are split by the test alone")
	}
	for _, key := range hostile {
		line := admin.CommandLine("keyhold", "partitions skip", []string{"--reason", key}, "bills", key)
		want := []string{"keyhold", "partitions", "skip", "bills", key, "--reason", key}
		if strings.HasPrefix(key, "-") {
			want = []string{"keyhold", "partitions", "skip", "bills", "--reason", key, "--", key}
		}
		got, err := split(line)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %s: %v (-want +got):\n%s", key, line, err, diff)
		}
		if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == '\u202e' || r == '\u200b' }) {
			t.Errorf("%q is advised as %q, which is not what is seen", key, line)
		}
		if bash == "" {
			continue
		}
		for _, locale := range []string{"C", "C.UTF-8"} {
			c := exec.CommandContext(t.Context(), bash, "-c", `printf '%s\0' `+line)
			c.Env = []string{"LC_ALL=" + locale}
			out, err := c.Output()
			if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); err != nil || !slices.Equal(got, want) {
				t.Errorf("%q, in %s: bash makes %q of %s: %v", key, locale, got, line, err)
			}
		}
	}
}

// split takes a line apart as a shell does.
func split(line string) (words []string, err error) {
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		var word strings.Builder
		for line != "" && line[0] != ' ' {
			switch {
			case strings.HasPrefix(line, "$'"):
				line, err = escaped(&word, line[2:])
			case line[0] == '\'':
				inner, rest, ok := strings.Cut(line[1:], "'")
				if !ok {
					err = errors.New("a quotation does not end")
				}
				word.WriteString(inner)
				line = rest
			case line[0] == '\\' && len(line) > 1:
				word.WriteByte(line[1])
				line = line[2:]
			case strings.ContainsRune("\"$`;&|<>()*?[]{}!#~", rune(line[0])):
				err = errors.New("a shell makes something of " + line)
			default:
				word.WriteByte(line[0])
				line = line[1:]
			}
			if err != nil {
				return words, err
			}
		}
		words = append(words, word.String())
	}
	return words, nil
}

// escaped takes what is between $' and '.
func escaped(word *strings.Builder, line string) (rest string, err error) {
	for line != "" {
		switch {
		case line[0] == '\'':
			return line[1:], nil
		case line[0] != '\\':
			word.WriteByte(line[0])
			line = line[1:]
		case len(line) > 3 && line[1] >= '0' && line[1] <= '3':
			word.WriteByte((line[1]-'0')<<6 | (line[2]-'0')<<3 | (line[3] - '0'))
			line = line[4:]
		case len(line) > 1 && (line[1] == '\'' || line[1] == '\\'):
			word.WriteByte(line[1])
			line = line[2:]
		default:
			return line, errors.New("an escape that not every shell knows")
		}
	}
	return line, errors.New("a quotation does not end")
}
