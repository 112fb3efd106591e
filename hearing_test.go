package keyhold

import (
	"testing"
	"time"
)

func TestMembersThatGossipDoesNotReachAreToldOnce(t *testing.T) {
	t.Parallel()
	var h hearing
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for i, step := range []struct {
		after      time.Duration
		unheard    int
		tell, over bool
	}{
		{0, 1, false, false},
		{unheardFor - 1, 1, false, false},
		{0, 0, false, false}, // it only restarted
		{0, 1, false, false},
		{unheardFor, 2, true, false},
		{time.Hour, 1, false, false},
		{0, 0, false, true},
		{0, 0, false, false},
	} {
		at = at.Add(step.after)
		if tell, over := h.note(step.unheard, at); tell != step.tell || over != step.over {
			t.Errorf("step %d: tell %t, over %t", i, tell, over)
		}
	}
}
