package eventstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

func TestGoodActsAreValid(t *testing.T) {
	t.Parallel()
	handler := event.Unit{Name: "shipping"}
	for _, a := range []eventstore.Act{
		{Kind: eventstore.ActRetry, Unit: unit, Seen: event.Position{Lane: orders, Sequence: 5}, Actor: "ann"},
		{Kind: eventstore.ActSkip, Unit: unit, Seen: event.Position{Lane: orders, Sequence: 5}, Actor: "ann", Reason: "why"},
		{Kind: eventstore.ActDeadLetter, Unit: unit, Seen: event.Position{Lane: orders, Sequence: 5}, Actor: "ann", Reason: "why"},
		{Kind: eventstore.ActPause, Unit: unit, Actor: "ann"},
		{Kind: eventstore.ActPause, Unit: handler, Actor: "ann"},
		{Kind: eventstore.ActResume, Unit: unit, Actor: "ann"},
		{Kind: eventstore.ActResume, Unit: handler, Actor: "ann"},
		{Kind: eventstore.ActRename, Unit: handler, To: "shipments", Actor: "ann", Reason: "why"},
		{Kind: eventstore.ActRemove, Unit: handler, Actor: "ann", Reason: "why"},
		{Kind: eventstore.ActReset, Unit: handler, Start: &eventstore.Start{}, Actor: "ann", Reason: "why"},
	} {
		if err := a.Validate(); err != nil {
			t.Errorf("%+v: %v", a, err)
		}
	}
}

func TestMalformedActsAreNamedWithAllThatIsWrong(t *testing.T) {
	t.Parallel()
	handler := event.Unit{Name: "shipping"}
	for _, c := range []struct {
		act   eventstore.Act
		wants []string
	}{
		{eventstore.Act{}, []string{"no such act", "no name", "no actor", "no reason"}},
		{eventstore.Act{Kind: "nonsense", Unit: unit, Actor: "ann", Reason: "why"}, []string{`nonsense "shipping/a": no such act`}},
		{eventstore.Act{Kind: eventstore.ActSkip, Unit: handler}, []string{"a key is needed", "the event at which", "no actor", "no reason"}},
		{eventstore.Act{Kind: eventstore.ActRetry, Unit: unit, Seen: event.Position{Sequence: 5}, Actor: "ann"}, []string{"the event at which"}},
		{eventstore.Act{Kind: eventstore.ActRetry, Unit: unit, Seen: event.Position{Lane: orders}, Actor: "ann"}, []string{"the event at which"}},
		{eventstore.Act{Kind: eventstore.ActDeadLetter, Unit: unit, Seen: event.Position{Lane: orders, Sequence: 5}, Actor: "ann"}, []string{"no reason"}},
		{eventstore.Act{Kind: eventstore.ActPause, Unit: unit}, []string{"no actor"}},
		{eventstore.Act{Kind: eventstore.ActRename, Unit: unit, To: "a:b"}, []string{"leave the key out", "new name", "no reason"}},
		{eventstore.Act{Kind: eventstore.ActRename, Unit: handler, To: "shipping.commands"}, []string{"new name"}},
		{eventstore.Act{Kind: eventstore.ActRename, Unit: handler, To: "shipping"}, []string{"has that name already"}},
		{eventstore.Act{Kind: eventstore.ActRemove, Unit: unit, Actor: "ann", Reason: "why"}, []string{"leave the key out"}},
		{eventstore.Act{Kind: eventstore.ActReset, Unit: handler, Actor: "ann"}, []string{"no start", "no reason"}},
		{eventstore.Act{Kind: eventstore.ActPauseJob, Unit: handler, Actor: "ann", Reason: "why"}, []string{"calls of their own"}},
	} {
		err := c.act.Validate()
		for _, want := range c.wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: got %v, want something with %q", c.act, err, want)
			}
		}
	}
}

func TestMalformedJobsAreNamedWithAllThatIsWrong(t *testing.T) {
	t.Parallel()
	good := func() eventstore.Job {
		return eventstore.Job{Kind: eventstore.JobPurge, Filter: eventstore.Filter{Handler: "shipping"}, Rate: eventstore.MaxRate, Actor: "ann", Reason: "why"}
	}
	if j := good(); j.Validate() != nil {
		t.Fatal(j.Validate())
	}
	for _, c := range []struct {
		want  string
		spoil func(j *eventstore.Job)
	}{
		{`no such kind "nonsense"`, func(j *eventstore.Job) { j.Kind = "nonsense" }},
		{"name a handler", func(j *eventstore.Job) { j.Filter.Handler = "" }},
		{"nothing is from", func(j *eventstore.Job) { j.Filter.From, j.Filter.Until = noon, noon }},
		{"rate is -1", func(j *eventstore.Job) { j.Rate = -1 }},
		{"rate is 100001", func(j *eventstore.Job) { j.Rate++ }},
		{"no actor", func(j *eventstore.Job) { j.Actor = "" }},
		{"no reason", func(j *eventstore.Job) { j.Reason = "" }},
	} {
		j := good()
		c.spoil(&j)
		if err := j.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want something with %q", err, c.want)
		}
	}
	if err := (&eventstore.Filter{Handler: "shipping", From: noon, Until: noon.Add(time.Millisecond)}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestWhatIsDoneToJobsIsChecked(t *testing.T) {
	t.Parallel()
	for _, kind := range []eventstore.ActKind{eventstore.ActPauseJob, eventstore.ActResumeJob, eventstore.ActCancelJob} {
		if err := eventstore.CheckJobAct(kind, "ann"); err != nil {
			t.Error(err)
		}
		if err := eventstore.CheckJobAct(kind, ""); err == nil || !strings.Contains(err.Error(), "no actor") {
			t.Errorf("got %v", err)
		}
	}
	for _, kind := range []eventstore.ActKind{eventstore.ActStartJob, eventstore.ActPause, ""} {
		if err := eventstore.CheckJobAct(kind, "ann"); err == nil || !strings.Contains(err.Error(), "not done to jobs") {
			t.Errorf("%q: got %v", kind, err)
		}
	}
}

func TestPartitionQueriesAreChecked(t *testing.T) {
	t.Parallel()
	if err := (&eventstore.PartitionQuery{Status: eventstore.StatusBehind, Limit: 1}).Validate(); err != nil {
		t.Error(err)
	}
	if err := (&eventstore.PartitionQuery{Status: "stuck", Limit: 1}).Validate(); err == nil || !strings.Contains(err.Error(), "known: [done") {
		t.Errorf("got %v", err)
	}
	if err := (&eventstore.PartitionQuery{}).Validate(); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("got %v", err)
	}
}
