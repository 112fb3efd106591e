package guarantees

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// TestPoison has events go wrong in processes on SQLite, which are stopped and killed meanwhile, and an operator outside of them.
func TestPoison(t *testing.T) {
	t.Parallel()
	t.Run("a halt is of one key of one handler, and outlives restarts and kills", haltIsScopedAndKept)
	t.Run("retry goes on with the same event, within half a second", retryGoesOn)
	t.Run("skip passes one event, also while nothing runs", skipPassesOne)
	t.Run("a dead letter is replayed by its handler alone, once", deadLetterIsReplayed)
	t.Run("parked events are applied in order, through a kill", parkedInOrder)
	t.Run("an event that exits the process is halted, and no other", func(t *testing.T) { crasherIsHalted(t, "exit") })
	t.Run("an event that exhausts memory is halted, and no other", func(t *testing.T) { crasherIsHalted(t, "memory") })
	t.Run("a replayed dead letter that exits the process stays one, and the process lives", replayedCrasherStays)
	t.Run("an event that exits the process in a projection halts that, and nothing else", projectionCrasherIsHalted)
	t.Run("acts are compared and audited", actsAreComparedAndAudited)
	t.Run("a pause outlives a restart", pauseOutlivesRestart)
}

const attemptsEach = 2 // of the handlers' Retry

// halted waits until a unit is, and gives what an operator sees.
func (d *desk) halted(by *admin.Desk, handler, client string) *admin.Unit {
	d.Helper()
	var unit admin.Unit
	d.eventually(handler+" of "+client+" is halted", func() bool {
		var err error
		unit, err = by.Unit(d.Context(), event.Unit{Name: handler, Key: client}, admin.ShowOptions{})
		if err != nil {
			d.Fatal(err)
		}
		return unit.Halt != nil
	})
	return &unit
}

func (d *desk) act(by *admin.Desk, r admin.ActRequest) admin.ActResult {
	d.Helper()
	result, err := by.Act(d.Context(), r)
	if err != nil {
		d.Fatalf("%s %s: %v", r.Kind, r.Unit(), err)
	}
	return result
}

func haltIsScopedAndKept(t *testing.T) {
	d := newDesk(t)
	clients := names(8)
	d.breakIt("billing", "c-03", 5, "error")
	d.start()
	d.publish(clients, 1, 10)
	ada := d.operator("ada")
	d.halted(ada, "billing", "c-03")
	check := func(last int) {
		d.Helper()
		for _, c := range clients {
			d.applied("mailing", c, upTo(1, last)...)
			if c == "c-03" {
				d.applied("billing", c, upTo(1, 4)...)
			} else {
				d.applied("billing", c, upTo(1, last)...)
			}
		}
		if n := d.entered("billing", "c-03", 5); n != attemptsEach {
			d.Errorf("the event that halted was tried %d times, want %d", n, attemptsEach)
		}
	}
	check(10)
	d.kill()
	d.start()
	d.publish(clients, 11, 12)
	check(12)
	d.stop()
	d.start()
	d.publish(clients, 13, 13)
	check(13)
	d.mend("billing", "c-03", 5)
	d.act(ada, admin.ActRequest{Kind: eventstore.ActRetry, Handler: "billing", Key: "c-03"})
	d.applied("billing", "c-03", upTo(1, 13)...)
	d.alone()
}

func retryGoesOn(t *testing.T) {
	d := newDesk(t)
	d.breakIt("billing", "c-00", 2, "error")
	d.start()
	d.publish(names(2), 1, 4)
	ada := d.operator("ada")
	seen := d.halted(ada, "billing", "c-00")
	d.mend("billing", "c-00", 2)
	r := d.act(ada, admin.ActRequest{Kind: eventstore.ActRetry, Handler: "billing", Key: "c-00", Expect: seen.Expect})
	took := d.applied("billing", "c-00", 1, 2, 3, 4)
	d.Logf("taken up and through after %v (said: %s)", took.Round(time.Millisecond), r.TakenUp)
	if took > 5*time.Second { // half a second to take it up; the rest is a busy machine
		d.Errorf("took %v", took)
	}
	d.alone()
}

func skipPassesOne(t *testing.T) {
	d := newDesk(t)
	d.breakIt("billing", "c-00", 3, "error")
	d.start()
	d.publish(names(1), 1, 6)
	ada := d.operator("ada")
	d.halted(ada, "billing", "c-00")
	d.stop()
	r := d.act(ada, admin.ActRequest{Kind: eventstore.ActSkip, Handler: "billing", Key: "c-00", Reason: "address is gone for good"})
	if !strings.Contains(r.TakenUp, "starts") {
		d.Errorf("taken up: %q", r.TakenUp)
	}
	d.start()
	d.applied("billing", "c-00", 1, 2, 4, 5, 6)
	d.applied("mailing", "c-00", upTo(1, 6)...)
	d.alone()
}

func deadLetterIsReplayed(t *testing.T) {
	d := newDesk(t)
	d.breakIt("billing", "c-00", 3, "error")
	d.start()
	d.publish(names(2), 1, 6)
	ada := d.operator("ada")
	d.halted(ada, "billing", "c-00")
	d.act(ada, admin.ActRequest{Kind: eventstore.ActDeadLetter, Handler: "billing", Key: "c-00", Reason: "later"})
	d.applied("billing", "c-00", 1, 2, 4, 5, 6)

	replay := admin.JobRequest{Kind: eventstore.JobReplay, Filter: admin.Filter{Handler: "billing", Key: "c-00"}}
	done := func() admin.Job { // the cause is not mended yet: it stays
		d.Helper()
		job, err := ada.StartJob(d.Context(), replay)
		if err != nil {
			d.Fatal(err)
		}
		d.eventually("the replay is done", func() bool {
			if job, err = ada.Job(d.Context(), job.ID); err != nil {
				d.Fatal(err)
			}
			return job.State == eventstore.JobDone
		})
		return job
	}
	if job := done(); job.Total != 1 || job.Failed != 1 || job.Through != 0 {
		d.Errorf("replay of what is not mended: %+v", job)
	}
	d.mend("billing", "c-00", 3)
	if job := done(); job.Through != 1 || job.Failed != 0 {
		d.Errorf("replay of what is mended: %+v", job)
	}
	d.applied("billing", "c-00", 1, 2, 4, 5, 6, 3)
	d.applied("mailing", "c-00", upTo(1, 6)...)
	d.kill()
	d.start()
	d.publish(names(2), 7, 7)
	d.applied("billing", "c-00", 1, 2, 4, 5, 6, 3, 7)
	d.applied("billing", "c-01", upTo(1, 7)...)
	dead, err := ada.DeadLetters(d.Context(), admin.DeadQuery{Filter: admin.Filter{Handler: "billing"}})
	if err != nil || len(dead.Items) != 0 {
		d.Errorf("dead letters left: %v, %v", dead.Items, err)
	}
	d.alone()
}

func parkedInOrder(t *testing.T) {
	d := newDesk(t)
	const last = 60
	clients := names(3)
	d.breakIt("mailing", "c-01", 4, "error")
	d.start()
	d.publish(clients, 1, 20)
	ada := d.operator("ada")
	parked := func(n int) {
		d.Helper()
		d.eventually("events are parked", func() bool {
			units, err := ada.Parking(d.Context(), admin.UnitQuery{Handler: "mailing"})
			if err != nil {
				d.Fatal(err)
			}
			return len(units.Items) == 1 && units.Items[0].Key == "c-01" && units.Items[0].Count == n
		})
	}
	parked(17)
	d.kill()
	d.start()
	d.publish(clients, 21, last)
	parked(last - 3)
	for _, c := range clients {
		d.applied("billing", c, upTo(1, last)...)
		if c != "c-01" {
			d.applied("mailing", c, upTo(1, last)...)
		}
	}
	d.applied("mailing", "c-01", 1, 2, 3)
	if n := d.entered("mailing", "c-01", 5); n != 0 {
		d.Errorf("an event behind the parked one was tried %d times", n)
	}
	d.mend("mailing", "c-01", 4)
	d.act(ada, admin.ActRequest{Kind: eventstore.ActRetry, Handler: "mailing", Key: "c-01"})
	d.eventually("the first parked events are applied", func() bool { return len(d.effects("mailing")["c-01"]) > 3 })
	d.kill() // somewhere in the middle
	d.start()
	d.publish(clients, last+1, last+1)
	d.applied("mailing", "c-01", upTo(1, last+1)...)
	d.alone()
}

// crasherIsHalted starts the application again and again, as whatever runs services does, until it does not die any more.
func crasherIsHalted(t *testing.T, how string) {
	d := newDesk(t)
	const crasher, last = "c-07", 4
	clients := names(50)
	d.start()
	d.breakIt("billing", crasher, 2, how)
	d.tell("publish %s 1 %d", strings.Join(clients, ","), last) // it may die before it has said that it is done
	ada := d.operator("ada")
	halted := func() bool {
		u, err := ada.Unit(d.Context(), event.Unit{Name: "billing", Key: crasher}, admin.ShowOptions{})
		return err == nil && u.Halt != nil
	}
	deaths := 0
	for d.diesBefore(halted) {
		if deaths++; deaths > 10 {
			d.Fatalf("%d deaths, and the event is not halted:\n%s", deaths, d.log())
		}
		d.launch()
	}
	for _, c := range clients {
		d.applied("mailing", c, upTo(1, last)...)
		if c == crasher {
			d.applied("billing", c, 1)
		} else {
			d.applied("billing", c, upTo(1, last)...)
		}
	}
	halts, err := ada.Halts(d.Context(), admin.UnitQuery{})
	if err != nil || len(halts.Items) != 1 || halts.Items[0].Key != crasher || halts.Items[0].Reason != "crashed the process" {
		d.Errorf("halted are %+v, %v", halts.Items, err)
	}
	d.Logf("deaths=%d starts-of-the-event=%d others-halted=%d", deaths, d.entered("billing", crasher, 2), len(halts.Items)-1)
	if n := d.entered("billing", crasher, 2); n != deaths {
		d.Errorf("the event was begun %d times, and the process died %d times", n, deaths)
	}
	d.act(ada, admin.ActRequest{Kind: eventstore.ActSkip, Handler: "billing", Key: crasher, Reason: "it kills the process"})
	d.applied("billing", crasher, 1, 3, 4)
	d.alone()
}

func replayedCrasherStays(t *testing.T) {
	d := newDesk(t)
	d.breakIt("billing", "c-00", 3, "error")
	d.start()
	d.publish(names(2), 1, 4)
	ada := d.operator("ada")
	d.halted(ada, "billing", "c-00")
	d.act(ada, admin.ActRequest{Kind: eventstore.ActDeadLetter, Handler: "billing", Key: "c-00", Reason: "later"})
	d.applied("billing", "c-00", 1, 2, 4)
	before := d.entered("billing", "c-00", 3)
	d.breakIt("billing", "c-00", 3, "exit")
	job, err := ada.StartJob(d.Context(), admin.JobRequest{Kind: eventstore.JobReplay, Filter: admin.Filter{Handler: "billing"}})
	if err != nil {
		d.Fatal(err)
	}
	over := func() bool {
		now, err := ada.Job(d.Context(), job.ID)
		return err == nil && now.State == eventstore.JobDone
	}
	deaths := 0
	for d.diesBefore(over) {
		if deaths++; deaths > 10 {
			d.Fatalf("%d deaths, and no end of it:\n%s", deaths, d.log())
		}
		d.launch()
	}
	d.publish(names(2), 5, 6)
	d.applied("billing", "c-00", 1, 2, 4, 5, 6)
	d.applied("billing", "c-01", upTo(1, 6)...)
	dead, err := ada.DeadLetters(d.Context(), admin.DeadQuery{Filter: admin.Filter{Handler: "billing"}})
	if err != nil || len(dead.Items) != 1 || dead.Items[0].Reason != "crashed the process" {
		d.Errorf("dead letters: %+v, %v", dead.Items, err)
	}
	n := d.entered("billing", "c-00", 3) - before
	d.Logf("deaths=%d starts-of-the-event=%d", deaths, n)
	if n != deaths || deaths > 4 { // the first unsuspected, then three alone
		d.Errorf("%d deaths, the event was begun %d times", deaths, n)
	}
	d.alone()
}

func projectionCrasherIsHalted(t *testing.T) {
	d := newDesk(t)
	clients := names(5)
	d.start()
	d.breakIt("board", "c-03", 4, "exit")
	d.tell("publish %s 1 8", strings.Join(clients, ",")) // it may die before it has said that it is done
	ada := d.operator("ada")
	stopped := func() *admin.ProjectionStop {
		p, err := ada.Projection(d.Context(), "board")
		if err != nil || len(p.Builds) == 0 {
			return nil
		}
		if s := p.Builds[0].Stopped; s != nil && s.Halted {
			return s
		}
		return nil
	}
	deaths := 0
	for d.diesBefore(func() bool { return stopped() != nil }) {
		if deaths++; deaths > 10 {
			d.Fatalf("%d deaths, and no end of it:\n%s", deaths, d.log())
		}
		d.launch()
	}
	if h := stopped(); h.Reason != "crashed the process" {
		d.Errorf("halted: %+v", h)
	}
	for _, c := range clients {
		d.applied("billing", c, upTo(1, 8)...)
		d.applied("mailing", c, upTo(1, 8)...)
	}
	halts, err := ada.Halts(d.Context(), admin.UnitQuery{})
	if err != nil || len(halts.Items) > 0 {
		d.Errorf("halted besides: %+v, %v", halts.Items, err)
	}
	n := d.entered("board", "c-03", 4)
	d.Logf("deaths=%d starts-of-the-event=%d", deaths, n)
	if n != deaths || deaths > 5 {
		d.Errorf("%d deaths, the event was begun %d times", deaths, n)
	}
	d.mend("board", "c-03", 4)
	if _, err := ada.ActOnProjection(d.Context(), admin.ProjectionRequest{Kind: eventstore.ActRetry, Name: "board"}); err != nil {
		d.Fatal(err)
	}
	for _, c := range clients {
		d.applied("board", c, upTo(1, 8)...)
	}
	d.alone()
}

// diesBefore waits until the application has died, or something holds.
func (d *desk) diesBefore(holds func() bool) bool {
	d.Helper()
	died := false
	d.eventually("it is halted, or has died", func() bool {
		select {
		case <-d.now.gone:
			died = true
		default:
		}
		return died || holds()
	})
	return died
}

func actsAreComparedAndAudited(t *testing.T) {
	d := newDesk(t)
	d.breakIt("billing", "c-00", 2, "error")
	d.start()
	d.publish(names(1), 1, 3)
	ada, bob := d.operator("ada"), d.operator("bob")
	seen := d.halted(bob, "billing", "c-00")
	// Ada has it tried again, in vain; what Bob saw is not what is there any more, although it is the same event.
	d.act(ada, admin.ActRequest{Kind: eventstore.ActRetry, Handler: "billing", Key: "c-00", Expect: seen.Expect, Reason: "after the deploy"})
	d.eventually("halted again", func() bool {
		u := d.halted(ada, "billing", "c-00")
		return !u.Halt.Since.Equal(seen.Halt.Since)
	})
	_, err := bob.Act(d.Context(), admin.ActRequest{
		Kind: eventstore.ActSkip, Handler: "billing", Key: "c-00", Expect: seen.Expect, Reason: "cannot be billed",
	})
	moved, ok := errors.AsType[*admin.MovedError](err)
	if !ok || moved.Now == nil || moved.Now.Halt == nil || moved.Now.Halt.Since.Equal(seen.Halt.Since) {
		d.Fatalf("skip of what moved: %v", err)
	}
	d.act(bob, admin.ActRequest{Kind: eventstore.ActSkip, Handler: "billing", Key: "c-00", Expect: moved.Now.Expect, Reason: "cannot be billed"})
	d.applied("billing", "c-00", 1, 3)
	// Nothing is done twice, and nothing without a reason where one is asked for.
	if _, err := ada.Act(d.Context(), admin.ActRequest{Kind: eventstore.ActRetry, Handler: "billing", Key: "c-00"}); !errors.Is(err, eventstore.ErrStateMoved) {
		d.Errorf("retry of what is not halted: %v", err)
	}
	d.breakIt("billing", "c-00", 4, "error")
	d.publish(names(1), 4, 4)
	d.halted(ada, "billing", "c-00")
	if _, err := ada.Act(d.Context(), admin.ActRequest{Kind: eventstore.ActSkip, Handler: "billing", Key: "c-00"}); !errors.Is(err, admin.ErrUsage) {
		d.Errorf("skip without a reason: %v", err)
	}
	audit, err := ada.Audit(d.Context(), admin.AuditQuery{Handler: "billing"})
	if err != nil {
		d.Fatal(err)
	}
	var said []string
	for _, a := range audit.Items {
		said = append(said, strings.Join([]string{string(a.Kind), a.Key, a.Actor, a.Reason}, " | "))
	}
	want := "skip | c-00 | bob | cannot be billed\nretry | c-00 | ada | after the deploy"
	if got := strings.Join(said, "\n"); got != want {
		d.Errorf("audit:\n%s\nwant:\n%s", got, want)
	}
}

func pauseOutlivesRestart(t *testing.T) {
	d := newDesk(t)
	clients := names(3)
	d.start()
	d.publish(clients, 1, 2)
	for _, c := range clients {
		d.applied("billing", c, 1, 2)
		d.applied("mailing", c, 1, 2)
	}
	ada := d.operator("ada")
	d.act(ada, admin.ActRequest{Kind: eventstore.ActPause, Handler: "billing", Key: "c-01", Reason: "dispute"})
	d.act(ada, admin.ActRequest{Kind: eventstore.ActPause, Handler: "mailing", Reason: "provider is down"})
	d.kill() // taken up by the next start, for certain
	d.start()
	d.publish(clients, 3, 5)
	d.applied("billing", "c-00", upTo(1, 5)...)
	d.applied("billing", "c-02", upTo(1, 5)...)
	d.applied("billing", "c-01", 1, 2)
	for _, c := range clients {
		d.applied("mailing", c, 1, 2)
	}
	d.act(ada, admin.ActRequest{Kind: eventstore.ActResume, Handler: "mailing"})
	d.act(ada, admin.ActRequest{Kind: eventstore.ActResume, Handler: "billing", Key: "c-01"})
	for _, c := range clients {
		d.applied("mailing", c, upTo(1, 5)...)
		d.applied("billing", c, upTo(1, 5)...)
	}
	d.alone()
}
