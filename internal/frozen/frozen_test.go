package frozen

import (
	"slices"
	"strings"
	"testing"
)

func TestAScriptThatChangedIsFound(t *testing.T) {
	t.Parallel()
	was := map[string]string{"1.sql": "CREATE TABLE a (x)\n", "2.sql": "CREATE TABLE b (x)\n"}
	_, sums := compare(was, nil)
	if changed, added := compare(was, sums); len(changed) > 0 || len(added) > 0 {
		t.Errorf("nothing changed, and found were %q, %v", changed, added)
	}
	checkedOut := map[string]string{"1.sql": "CREATE TABLE a (x)\r\n", "2.sql": was["2.sql"]}
	if changed, _ := compare(checkedOut, sums); len(changed) > 0 {
		t.Errorf("other ends of lines: %q", changed)
	}
	changed, added := compare(map[string]string{"1.sql": "CREATE TABLE a (y)\n", "3.sql": ""}, sums)
	slices.Sort(changed)
	if len(changed) != 2 || !strings.HasPrefix(changed[0], "1.sql is not") || !strings.HasPrefix(changed[1], "2.sql was released") || added["3.sql"] == "" {
		t.Errorf("found were %q, %v", changed, added)
	}
}

func TestLinesThatAreNoneAreRefused(t *testing.T) {
	t.Parallel()
	if got, err := parse("ab  1.sql\ncd  2.sql\n"); err != nil || got["1.sql"] != "ab" || got["2.sql"] != "cd" {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"1.sql\n", "ab  1.sql\ncd  1.sql\n"} {
		if _, err := parse(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
