package event_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/keyhold/keyhold/event"
)

func TestDataMayBeAsLargeAsTheLimitAndNoLarger(t *testing.T) {
	t.Parallel()
	if err := event.CheckData("cart.added", make([]byte, event.MaxData)); err != nil {
		t.Error(err)
	}
	err := event.CheckData("cart.added", make([]byte, event.MaxData+1))
	if !errors.Is(err, event.ErrTooLarge) || !strings.Contains(err.Error(), `"cart.added"`) || !strings.Contains(err.Error(), "1048577 bytes") {
		t.Errorf("error: %v", err)
	}
}
