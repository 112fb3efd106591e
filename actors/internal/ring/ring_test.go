package ring_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/keyhold/keyhold/actors/internal/ring"
)

func TestAQueueGivesWhatItWasGivenInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var q ring.Queue[int]
		var model []int
		next := 0
		t.Repeat(map[string]func(*rapid.T){
			"push many": func(t *rapid.T) {
				for range rapid.IntRange(1, 200).Draw(t, "n") {
					q.Push(next)
					model = append(model, next)
					next++
				}
			},
			"pop many": func(t *rapid.T) {
				for range rapid.IntRange(0, len(model)).Draw(t, "n") {
					if got := q.Pop(); got != model[0] {
						t.Fatalf("got %d, want %d", got, model[0])
					}
					model = model[1:]
				}
			},
			"": func(t *rapid.T) {
				if q.Len() != len(model) {
					t.Fatalf("length is %d, want %d", q.Len(), len(model))
				}
			},
		})
	})
}

func TestPopOfAnEmptyQueuePanics(t *testing.T) {
	t.Parallel()
	var q ring.Queue[int]
	q.Push(1)
	q.Pop()
	defer func() {
		if recover() == nil {
			t.Error("it did not")
		}
	}()
	q.Pop()
}
