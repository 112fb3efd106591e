package command

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/eventstore"
)

// completed asks as a shell does: the last word is what was typed of it.
func (d *desktop) completed(t *testing.T, words ...string) (values []string) {
	t.Helper()
	r := d.run(t, append([]string{"__complete"}, words...)...)
	if r.code != ExitOK {
		t.Errorf("%q: exit %d: %s", words, r.code, r.err)
	}
	for line := range strings.Lines(r.out) {
		if value, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); !strings.HasPrefix(value, ":") {
			values = append(values, value)
		}
	}
	return values
}

func TestCompletionComesFromTheStore(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.run(t, "dlq", "replay", "shipping", "--all", "--yes")
	for _, c := range []struct {
		typed string
		want  []string
	}{
		{"partitions retry _", []string{"billing", "clients", "shipping"}},
		{"partitions retry sh", []string{"shipping"}},
		{"partitions retry shipping _", []string{"client-4", "client-7"}}, // those that are stopped; one is not fit to be typed
		{"partitions show billing client-1", []string{"client-1", "client-10", "client-11", "client-12"}},
		{"partitions ls --status _", []string{"halted", "parking", "trying", "paused", "behind", "done"}},
		{"partitions ls --category p", []string{"payment", "price"}},
		{"partitions ls --handler c", []string{"clients"}},
		{"why or", []string{"order"}},
		{"why sh", []string{"shipping"}},
		{"why order client-12", []string{"client-12"}},
		{"dlq show shipping _", []string{"client-1", "client-11", "client-3", "client-5", "client-9"}},
		{"dlq show shipping client-3 _", []string{"1"}},
		{"dlq ls --type _", []string{"order.cancelled", "order.placed", "payment.received"}},
		{"dlq replay shipping --type _", []string{"order.cancelled", "order.placed"}},
		{"jobs watch _", []string{"1"}},
		{"handlers reset clients --from _", []string{"oldest", "now"}},
		{"events cat o", []string{"order"}},
		{"events cat order client-4", []string{"client-4"}},
		{"handlers rename clients _", nil},
		{"dlq ls --because _", []string{"poison", "retries exhausted"}},
		{"dlq replay shipping --because p", []string{"poison"}},
		{"partitions retry shipping --because _", []string{"poison", "retries exhausted"}},
		{"partitions retry billing --because _", []string{"poison"}},
	} {
		words := strings.Fields(c.typed)
		if words[len(words)-1] == "_" {
			words[len(words)-1] = ""
		}
		if diff := cmp.Diff(c.want, d.completed(t, words...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.typed, diff)
		}
	}
	// Those that are stopped come first, then the others.
	if got := d.completed(t, "partitions", "show", "shipping", ""); len(got) != 12 || cmp.Diff(got[:4], []string{"client-4", "client-7", "client-5", "client-1"}) != "" {
		t.Errorf("keys in the order %v", got)
	}
}

func TestEntitiesAreCompletedByKindAndId(t *testing.T) {
	t.Parallel()
	d := setupEmpty(t)
	halted(t, d.db, []string{"client-1"})
	if diff := cmp.Diff([]string{"order/", "order/o-1"}, d.completed(t, "events", "cat", "--entity", "or")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A shell shows no errors, and waits for nobody.
func TestCompletionIsSilentAboutErrors(t *testing.T) {
	t.Parallel()
	d := setupEmpty(t)
	if got := d.completed(t, "partitions", "retry", ""); got != nil {
		t.Errorf("without a store: %v", got)
	}
	d.options.Open = func(context.Context) (eventstore.Operations, io.Closer, error) {
		return nil, nil, errors.New("no way in")
	}
	r := d.run(t, "__complete", "partitions", "retry", "shipping", "")
	if r.code != ExitOK || strings.Contains(r.out+r.err, "no way in") {
		t.Errorf("a store that does not open: %+v", r)
	}
	d.env.patience = time.Millisecond
	var left bool
	d.options.Open = func(ctx context.Context) (eventstore.Operations, io.Closer, error) {
		<-ctx.Done() // as a store does that is busy
		left = true
		return nil, nil, ctx.Err()
	}
	if got := d.completed(t, "partitions", "retry", ""); got != nil || !left {
		t.Errorf("a store that does not answer: %v", got)
	}
}
