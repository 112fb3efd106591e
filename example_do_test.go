package keyhold_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/transport/inline"
)

// ReadingTaken is an event that no entity emits.
type ReadingTaken struct {
	Sensor string `json:"sensor"`
	Value  int    `json:"value"`
}

var _ = keyhold.Type[ReadingTaken]("reading.taken", 1)

// Readings is its category, and has the key that orders it.
var Readings = keyhold.Category{
	Name: "reading", Key: "sensor", Events: []keyhold.EventType{keyhold.EventOf[ReadingTaken]()},
}

type display struct{}

func (display) show(ctx keyhold.Context, e ReadingTaken) error {
	fmt.Println(ctx.Key(), e.Value)
	return nil
}

var Display = keyhold.Handler[display]{
	Name: "display", Categories: []string{"reading"}, SequentialBy: "sensor", StartFrom: keyhold.Oldest,
	New: func(string) display { return display{} },
	On:  keyhold.Behavior[display]{keyhold.On(display.show)},
}

// What is emitted in a unit of work is committed together, or not at all.
func ExampleDo() {
	ctx := context.Background()
	app := keyhold.New(keyhold.Config{
		Name: "house", Store: memory.Open(), Transport: inline.New(), Logger: slog.New(slog.DiscardHandler),
	})
	app.Register(Readings, Display)
	if err := app.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer app.Stop(ctx)

	err := keyhold.Do(ctx, app, func(w keyhold.UnitOfWork) error {
		w.Emit(ReadingTaken{Sensor: "attic", Value: 21}, ReadingTaken{Sensor: "attic", Value: 22})
		return nil
	})
	fmt.Println(err)

	err = keyhold.Do(ctx, app, func(w keyhold.UnitOfWork) error {
		w.Emit(ReadingTaken{Sensor: "attic", Value: 23}, ReadingTaken{Value: 24}) // the second has no key
		return nil
	})
	fmt.Println(errors.Is(err, keyhold.ErrBadKey))
	// Output:
	// attic 21
	// attic 22
	// <nil>
	// true
}
