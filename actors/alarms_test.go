package actors

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestAlarmsRingInOrderOfTimeUnlessClearedOrSetAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAlarms()
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		rang := make(chan time.Duration, 100)
		var all []*alarm
		for range 10 {
			all = append(all, &alarm{ring: func() { rang <- time.Since(begin) }})
		}
		again := all[5]
		all[4].ring = func() { a.set(again, time.Now()) } // one that has rung rings at once
		for i, at := range []int{5, 1, 9, 3, 7, 2, 8, 6, 4, 10} {
			a.set(all[i], begin.Add(time.Duration(at)*time.Minute))
		}
		a.clear(all[0])
		a.clear(all[0])                           // twice does no harm
		a.set(all[1], begin.Add(150*time.Second)) // later than before
		a.set(all[9], begin.Add(30*time.Second))  // earlier than all others
		a.set(all[2], begin.Add(9*time.Minute))   // when it would have rung anyway

		var got, want []time.Duration
		for _, s := range []int{30, 120, 150, 180, 240, 360, 420, 480, 540} {
			want = append(want, time.Duration(s)*time.Second)
			got = append(got, <-rang)
		}
		if !slices.Equal(got, want) {
			t.Errorf("rang at %v, want %v", got, want)
		}

		a.set(all[0], time.Now())
		if err := a.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		for len(rang) > 0 { // it may have been in time
			<-rang
		}
		a.set(all[0], time.Now())
		synctest.Wait()
		if len(rang) > 0 {
			t.Error("an alarm rang after Stop")
		}
	})
}
