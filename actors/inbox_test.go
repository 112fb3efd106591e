package actors

import (
	"errors"
	"testing"
)

func wake(b *inbox) { b.mu.wake = true }

// A unit is gone only when nobody wants anything of it and no signal is on its way: of a wake and a close, the later sees the
// earlier.
func TestAnInboxClosesOnlyWhenNobodyWantsAnything(t *testing.T) {
	t.Parallel()
	var b inbox
	if first, ok := b.put(wake); !first || !ok {
		t.Fatalf("first put: %v, %v", first, ok)
	}
	if first, ok := b.put(wake); first || !ok {
		t.Errorf("a second one, which is merged: %v, %v", first, ok)
	}
	if b.close() {
		t.Fatal("closed with a signal on its way")
	}
	b.received()
	if b.close() {
		t.Fatal("closed with a wake inside")
	}
	if w, _ := b.wants(); w != wantWake {
		t.Errorf("wants %d", w)
	}
	k := &ask{answer: make(chan answer, 1)}
	if first, full, ok := b.putAsk(k, 1); !first || full || !ok {
		t.Errorf("ask: %v, %v, %v", first, full, ok)
	}
	b.received()
	if b.close() {
		t.Fatal("closed with an ask inside")
	}
	if got, _ := b.next(); got != k {
		t.Errorf("next: %v", got)
	}
	if !b.close() {
		t.Fatal("not closed although nobody wants anything")
	}
	if _, ok := b.put(wake); ok {
		t.Error("a closed inbox took a wake")
	}
	if _, _, ok := b.putAsk(k, 1); ok {
		t.Error("a closed inbox took an ask")
	}
}

// Whoever takes an ask out of its behavior answers it, and only one does.
func TestAnAskIsAnsweredByWhoeverTakesIt(t *testing.T) {
	t.Parallel()
	var b inbox
	k := &ask{answer: make(chan answer, 1)}
	b.putAsk(k, 1)
	b.next()
	waiting, begun := b.takeAsks(true)
	if len(waiting) != 0 || begun != k {
		t.Fatalf("took %v, %v", waiting, begun)
	}
	if b.finish() {
		t.Error("the unit may answer as well")
	}
	want := errors.New("stopping")
	if !begun.deliver(answer{err: want}) || begun.deliver(answer{}) {
		t.Error("it is not answered exactly once")
	}
	if got := <-k.answer; got.err != want {
		t.Errorf("answer: %v", got.err)
	}
}
