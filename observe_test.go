package keyhold

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// logged gives an application that is not started, and what it logs.
func logged(level slog.Level, o Observer) (*App, *bytes.Buffer) {
	var out bytes.Buffer
	return New(Config{Observer: o, Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level}))}), &out
}

// argument gives a value for an argument of an observer's func that it can do something with.
func argument(t reflect.Type) reflect.Value {
	switch {
	case t == reflect.TypeFor[error]():
		return reflect.ValueOf(errors.New("boom"))
	case t.Kind() == reflect.Pointer:
		return reflect.New(t.Elem())
	}
	return reflect.Zero(t)
}

func TestEverythingObservedIsLoggedAndPassedOn(t *testing.T) {
	t.Parallel()
	byRuntime := map[string]bool{"Misused": true}                       // logged there
	seams := map[string]bool{"Begin": true, "End": true, "Trace": true} // of each unit of work, which nobody logs
	for f := range reflect.TypeFor[actors.Observer]().Fields() {
		var args []reflect.Value
		for i := range f.Type.NumIn() {
			args = append(args, argument(f.Type.In(i)))
		}
		passed := 0
		var next Observer
		reflect.ValueOf(&next).Elem().FieldByIndex(f.Index).Set(reflect.MakeFunc(f.Type, func([]reflect.Value) []reflect.Value {
			passed++
			var zero []reflect.Value
			for i := range f.Type.NumOut() {
				zero = append(zero, reflect.Zero(f.Type.Out(i)))
			}
			return zero
		}))
		app, out := logged(slog.LevelDebug, next)
		o := reflect.ValueOf(app.observer()).FieldByIndex(f.Index)
		if o.IsNil() {
			t.Errorf("%s is observed by nobody", f.Name)
			continue
		}
		o.Call(args)
		if lines := strings.Count(out.String(), "\n"); lines != 1 && !byRuntime[f.Name] && !seams[f.Name] {
			t.Errorf("%s: %d lines in the log:\n%s", f.Name, lines, out)
		}
		if passed != 1 {
			t.Errorf("%s: passed on %d times", f.Name, passed)
		}
		if seams[f.Name] {
			continue
		}
		app, _ = logged(slog.LevelDebug, Observer{})
		reflect.ValueOf(app.observer()).FieldByIndex(f.Index).Call(args) // with nobody to pass it on to
	}
}

func TestTimerThatFailsIsAnErrorInTheLog(t *testing.T) {
	t.Parallel()
	app, out := logged(slog.LevelError, Observer{})
	app.observer().TimerFailed(event.Unit{Name: "ship", Key: "ada"}, "deadline", errors.New("boom"))
	for _, want := range []string{"level=ERROR", "unit=ship/ada", "timer=deadline", "error=boom"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, out)
		}
	}
}

func TestTroubleIsLoggedOnceAMinuteForEachKind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		app, out := logged(slog.LevelWarn, Observer{})
		trouble := app.observer().Trouble
		u := event.Unit{Name: "ship", Key: "ada"}
		for range 100 {
			trouble(u, "trouble", errors.New("disk broken"))
		}
		trouble(u, "gap", nil)
		time.Sleep(time.Minute)
		trouble(u, "trouble", errors.New("disk broken"))
		trouble(u, "trouble", errors.New("disk broken"))
		got := out.String()
		if strings.Count(got, "what=trouble") != 2 || strings.Count(got, "what=gap") != 1 || !strings.Contains(got, "unsaid=99") || strings.Contains(got, "<nil>") {
			t.Errorf("logged:\n%s", got)
		}
	})
}

func TestNoticesOfTheStoreSayOnlyWhatIsKnown(t *testing.T) {
	t.Parallel()
	for notice, want := range map[eventstore.Notice]string{
		{What: "database created", Routine: true}:               "level=INFO msg=\"store: database created\"\n",
		{What: "long hold", Who: "ship/ada", Took: time.Second}: "level=WARN msg=\"store: long hold\" who=ship/ada took=1s\n",
		{What: "waiting for owner", Error: context.Canceled}:    "level=WARN msg=\"store: waiting for owner\" error=\"context canceled\"\n",
	} {
		app, out := logged(slog.LevelDebug, Observer{})
		app.storeNotice(notice)
		if !strings.HasSuffix(out.String(), want) {
			t.Errorf("got %q, want %q", out, want)
		}
	}
}

// Nodes on two brokers take parts from each other as long as they run.
func TestNodesThatTakePartsFromEachOtherDoNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app, out := logged(slog.LevelInfo, Observer{})
		stale := (&shared{r: &running{app: app}}).relayed().Stale
		for p := range event.Part(3) {
			stale(p)
		}
		if lines := strings.Count(out.String(), "\n"); lines != 1 {
			t.Errorf("%d lines, want 1:\n%s", lines, out)
		}
		time.Sleep(time.Minute)
		if stale(0); !strings.Contains(out.String(), "unsaid=2") {
			t.Errorf("does not say how many were left out:\n%s", out)
		}
	})
}
