package cluster_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/cluster"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/transport/brokertest"
)

func TestPartsOfANodeThatDiedGoToTheOthersWhenItsLeasesLapse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.join("a"), w.join("b")
		pass(30 * time.Second)
		w.server.Break(func(c brokertest.Call) brokertest.Fault {
			if c.Node == "b" {
				return brokertest.Refused
			}
			return brokertest.None
		})
		pass(5 * time.Second) // renewed every other heartbeat of 3 s, they last for 12 s from then
		if n := b.partCount(); n == 0 {
			t.Error("it gave its parts up before their deadline")
		}
		pass(15 * time.Second) // TTL 15 s, of which 3 s are margin; and a heartbeat
		if n := b.partCount(); n != 0 {
			t.Errorf("it believes to hold %d parts after their deadline", n)
		}
		if n := a.partCount(); n != event.Parts {
			t.Errorf("the other node holds %d parts", n)
		}
		w.server.Break(nil)
		pass(15 * time.Second)
		if n := b.partCount(); n < 10 {
			t.Errorf("it is back, and holds %d parts", n)
		}
		a.leave()
		b.leave()
	})
}

// Who gives a part up for another one that ranks first stands by for it from then on. The nodes of this test look at the same moments, so that each is now the first to
// look and now the last.
func TestAPartThatWasHandedOverIsNotTakenBack(t *testing.T) {
	t.Parallel()
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			a := w.join("a")
			pass(30 * time.Second)
			b := w.join("b")
			for range 5 {
				pass(3 * time.Second)
				if a.partCount()+b.partCount() == event.Parts && b.partCount() > 0 {
					break
				}
			}
			held := b.partCount()
			pass(15 * time.Second)
			if n := b.partCount(); held < 10 || n < held || a.partCount()+n != event.Parts {
				t.Errorf("%d parts were handed over, the other one has %d now and the first %d", held, n, a.partCount())
			}
			a.leave()
			b.leave()
		})
	}
}

// Leases whose answers were lost are this node's, and are not waited for until they lapse: nothing of their lanes would be published for so long.
func TestPartsWhoseLeasesWereGrantedWithoutAnAnswerAreAskedForAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var lost unitSet
		w.server.Break(func(c brokertest.Call) brokertest.Fault {
			if c.Op != "acquire" || c.Unit.Name != event.PartName || !lost.add(c.Unit) {
				return brokertest.None
			}
			return brokertest.Lost
		})
		a := w.join("a")
		pass(time.Second)
		if n := a.partCount(); n > 0 || lost.count() != event.Parts {
			t.Errorf("it holds %d parts, and asked for %d", n, lost.count())
		}
		pass(3 * time.Second) // a heartbeat
		if n := a.partCount(); n != event.Parts {
			t.Errorf("it holds %d parts a heartbeat later", n)
		}
		a.leave()
	})
}

// Who takes over a part is to know whether the one before may have been ended by what it did. The broker says so once: where that answer is lost, or the store does not raise the part then,
// the next one does not say it any more.
func TestAPartThatWasNotGivenBackIsUnclean(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"told", "the answer is lost", "the store has a later generation"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				a := w.join("a")
				pass(time.Second)
				a.leave()
				b := w.join("b")
				pass(time.Second)
				uncleans := func(f *fake) (n int) {
					for i := range event.Parts {
						if f.Unclean(event.Part(i)) {
							n++
						}
					}
					return n
				}
				if n := uncleans(b); n != 0 {
					t.Errorf("%d parts that were given back are unclean", n)
				}
				var lost unitSet
				w.server.Break(func(c brokertest.Call) brokertest.Fault {
					if c.Node == "b" {
						return brokertest.Refused
					}
					if how == "the answer is lost" && c.Op == "acquire" && lost.add(c.Unit) {
						return brokertest.Lost
					}
					return brokertest.None
				})
				if how == "the store has a later generation" {
					for i := range event.Parts {
						if _, err := w.store.Raise(t.Context(), []eventstore.Ask{{Unit: event.Part(i).Unit(), Generation: 100}}); err != nil {
							t.Fatal(err)
						}
					}
				}
				c := w.join("c")
				pass(60 * time.Second)
				if n := c.partCount(); n != event.Parts {
					t.Errorf("%d parts are taken over", n)
				}
				if n := uncleans(c); n != event.Parts {
					t.Errorf("%d parts of a node that is gone are unclean", n)
				}
				w.server.Break(nil)
				b.leave()
				c.leave()
				d := w.join("d")
				pass(time.Second)
				if n := uncleans(d); n != 0 {
					t.Errorf("%d parts that were given back then are unclean", n)
				}
				d.leave()
			})
		})
	}
}

// A lease that somebody has may be this node's as long as it may last, and only where it was asked for at all. For longer, whoever stands by would take what the first for it is about to.
func TestWhatWasAskedForWithoutAnAnswerCountsAsThisNodesForOneTTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.join("a")
		if err := a.Drain(t.Context()); err != nil { // it goes for nothing by itself any more
			t.Fatal(err)
		}
		synctest.Wait() // what it went for before is answered
		w.server.Break(func(c brokertest.Call) brokertest.Fault {
			if c.Op == "acquire" {
				return brokertest.Lost
			}
			return brokertest.None
		})
		cluster.Acquire(t.Context(), a.Node, 7)
		pass(14 * time.Second)
		if !cluster.GoesFor(a.Node, 7, time.Second) {
			t.Error("it waits for a lease that may be its own")
		}
		pass(2 * time.Second)
		if cluster.GoesFor(a.Node, 7, time.Second) {
			t.Error("it goes for what another one holds, and its own lease has lapsed")
		}
		a.leave()
		cluster.Acquire(t.Context(), a.Node, 8)
		if cluster.GoesFor(a.Node, 8, time.Second) {
			t.Error("it goes for what another one holds, and has never asked for it")
		}
	})
}

// A broker that does not answer takes a call as long as it may: one for each part would be all the patience of a Stop, and many heartbeats of a node that goes on.
func TestABrokerThatDoesNotAnswerIsNotAskedToTakeBackOnePartAfterTheOther(t *testing.T) {
	t.Parallel()
	hangs := func(w *world) {
		w.server.Break(func(c brokertest.Call) brokertest.Fault {
			if c.Op == "release" {
				return late(3 * time.Second)
			}
			return brokertest.None
		})
	}
	t.Run("at a stop", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			a := w.join("a")
			pass(time.Second)
			hangs(w)
			began := time.Now()
			a.leave()
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
			if n := a.partCount(); n != 0 {
				t.Errorf("it relays %d parts", n)
			}
		})
	})
	t.Run("when another node wants them", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			a := w.join("a")
			pass(30 * time.Second)
			hangs(w)
			b := w.join("b")
			before := a.beaten()
			pass(30 * time.Second)
			if after := a.beaten(); after-before < 4 {
				t.Errorf("it has beaten %d times in ten heartbeats", after-before)
			}
			w.server.Break(nil)
			pass(15 * time.Second)
			if n := b.partCount(); n < 10 || n+a.partCount() != event.Parts {
				t.Errorf("they hold %d and %d parts in the end", a.partCount(), n)
			}
			a.leave()
			b.leave()
		})
	})
}

// A relay whose store hangs is done with the call under way when that is out of time. Parts that are given up wait for one call, and not for one each.
func TestPartsWaitTogetherForTheEndOfTheirRelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.join("a")
		pass(30 * time.Second)
		a.slow.Store(true)
		b := w.join("b")
		pass(25 * time.Second)
		if n := b.partCount(); n < 10 || n+a.partCount() != event.Parts {
			t.Errorf("they hold %d and %d parts", a.partCount(), n)
		}
		began := time.Now()
		a.leave()
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("a stop took %v", took)
		}
		b.leave()
	})
}
