package keyholdtest_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/keyholdtest"
)

const child = "KEYHOLDTEST_CHILD"

func TestFailuresPointAtTheLinesOfTheTest(t *testing.T) {
	t.Parallel()
	if os.Getenv(child) != "" {
		t.Skip("this is the child")
	}
	source, err := os.ReadFile("lines_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var want []int
	for i, line := range strings.Split(string(source), "\n") {
		if strings.HasSuffix(line, "// here") {
			want = append(want, i+1)
		}
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestThatFails$", "-test.v")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.Output()
	if err == nil {
		t.Fatalf("the child passed:\n%s", out)
	}
	var got []int
	for _, m := range regexp.MustCompile(`(?m)^ +lines_test\.go:(\d+): `).FindAllSubmatch(out, -1) {
		got = append(got, lineNumber(string(m[1])))
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
		t.Errorf("lines (-want +got):\n%s\n%s", diff, out)
	}
	if foreign := regexp.MustCompile(`(?m)^ +[a-z_]+\.go:\d+: `).FindAllString(string(out), -1); len(foreign) != len(got) {
		t.Errorf("some point elsewhere:\n%s", out)
	}
}

func lineNumber(digits string) (n int) {
	for _, d := range digits {
		n = 10*n + int(d-'0')
	}
	return n
}

// TestThatFails is the child of the test above. Each line marked fails, the last by what comes of it in the end.
func TestThatFails(t *testing.T) {
	if os.Getenv(child) == "" {
		t.Skip("only as the child of a test")
	}
	t.Run("steps", func(t *testing.T) {
		keyholdtest.Run(t, func(t *testing.T, k *keyholdtest.Kit) {
			c := keyholdtest.Entity(k, Cart(), "c-1").
				When(&Fill{Item: "tea"}).
				ThenEvents() // here
			c.ThenReply(nil)                   // here
			c.ThenRejected("no")               // here
			c.When(&Fill{}).ThenRejected("no") // here
			c.When(&Fill{})
			c.When(&Open{})                               // here
			c.ThenState(cart{Client: "ada"})              // here
			c.ThenSent(Cart().ID("reminders"), &Remind{}) // here
		})
	})
	t.Run("what is fatal", func(t *testing.T) {
		handler(t).Given(filled("a:b", "tea")) // here
	})
	t.Run("the end", func(t *testing.T) {
		h := keyholdtest.Handler(t, Packing(pack), keyholdtest.With(Parcels)) // here
		h.Given(filled("ada", "tea"))
	})
	t.Run("values", func(t *testing.T) {
		c := keyholdtest.Entity(t, tallies(0), "t-1")
		c.Given(Filled{}) // here
	})
}
