package local_test

import (
	"testing"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/transport/local"
	"github.com/keyhold/keyhold/transport/transporttest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, func(t *testing.T, store eventstore.Store, id eventstore.Identity) transporttest.Transport {
		tr := local.New()
		tr.Bind(store, id, event.KeyRules{})
		return tr
	})
}
