package memory_test

import (
	"testing"

	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/eventstoretest"
	"github.com/keyhold/keyhold/eventstore/memory"
)

func TestStore(t *testing.T) {
	t.Parallel()
	eventstoretest.Run(t, func(t *testing.T) eventstoretest.Harness {
		s := memory.Open()
		id, err := s.Start(t.Context(), eventstore.StartOptions{Node: "test"})
		if err != nil {
			t.Fatal(err)
		}
		return eventstoretest.Harness{Store: s, Identity: id, Reopen: func() eventstore.Store { return memory.Share(s) }}
	})
}
