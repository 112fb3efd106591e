package eventstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

func TestTypedErrorsAreTheirSentinelAlsoWhenWrapped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ err, is error }{
		{&eventstore.VersionError{}, eventstore.ErrVersionConflict},
		{&eventstore.CheckpointError{}, eventstore.ErrCheckpointMoved},
		{&eventstore.OwnedError{}, eventstore.ErrOwned},
		{&eventstore.ListMovedError{}, eventstore.ErrListMoved},
	} {
		wrapped := fmt.Errorf("commit: %w", c.err)
		if !errors.Is(wrapped, c.is) {
			t.Errorf("%T is no %v", c.err, c.is)
		}
		if errors.Is(wrapped, eventstore.ErrStale) {
			t.Errorf("%T is %v", c.err, eventstore.ErrStale)
		}
	}
}

func TestMessagesTellWhatAPersonNeeds(t *testing.T) {
	t.Parallel()
	halt := eventstore.Halt{Unit: unit, Lane: orders, Sequence: 7}
	for _, c := range []struct {
		err   error
		wants []string
	}{
		{&eventstore.VersionError{Stream: order7, Expected: 3, Actual: 4}, []string{`"order/7"`, "is 4", "expected 3"}},
		{&eventstore.CheckpointError{Name: "shipping", Lane: orders, From: 3, Actual: 4}, []string{`"shipping"`, "order:a", "is 4", "expected 3"}},
		{&eventstore.HaltMovedError{Wanted: halt.Ref()}, []string{`"shipping/a"`, "not halted"}},
		{&eventstore.HaltMovedError{Wanted: eventstore.HaltRef{Unit: unit, Lane: orders, Sequence: 6}, Now: &halt}, []string{"order:a #7", "not at order:a #6"}},
		{&eventstore.HaltMovedError{
			Wanted: eventstore.HaltRef{Unit: unit, Lane: event.LaneRef{Category: "payment", Key: "a"}, Sequence: 7}, Now: &halt,
		}, []string{"order:a #7", "not at payment:a #7"}},
		{&eventstore.RegistryError{Expected: 1, Actual: 2}, []string{"revision 2", "start again"}},
		{&eventstore.ListMovedError{Read: 1, Actual: 2}, []string{"revision 1", "at 2", "another program"}},
		{&eventstore.OwnedError{Path: "orders.db", PID: 42, Node: "orders@host"}, []string{"orders.db", "process 42", "orders@host", "stop it"}},
		{&eventstore.OwnedError{Path: "orders.db"}, []string{"another process"}},
		{&eventstore.OwnedError{Path: "orders.db", PID: 42, Here: true}, []string{"orders.db", "another App of this process", "a store of its own"}},
		{&eventstore.FormatError{Path: "orders.db", Found: 3, Known: 2}, []string{"orders.db", "run the newer program"}},
		{&eventstore.FormatError{Path: "orders.db", Found: 1, Known: 2}, []string{"orders.db", "migrate"}},
	} {
		for _, want := range c.wants {
			if !strings.Contains(c.err.Error(), want) {
				t.Errorf("%T says %q, without %q", c.err, c.err, want)
			}
		}
	}
}
