package keyhold_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/transport/local"
)

// LetterWritten is an event that no entity emits.
type LetterWritten struct {
	To string `json:"to"`
	No int    `json:"no"`
}

var _ = keyhold.Type[LetterWritten]("letter.written", 1)

var Letters = keyhold.Category{
	Name: "letter", Key: "to", Events: []keyhold.EventType{keyhold.EventOf[LetterWritten]()},
}

// postman delivers letters where it knows the address.
type postman struct {
	knows     func(name string) bool
	delivered chan<- LetterWritten
}

func (p postman) written(_ keyhold.Context, e LetterWritten) error {
	if !p.knows(e.To) {
		return keyhold.Poison(errors.New("no such address")) // no further attempt can mend it; any other error is tried again
	}
	p.delivered <- e
	return nil
}

// A key halts before the event that cannot be applied; others go on. When the cause is mended and somebody resumes it, that event is
// tried again, then come those behind it.
func ExampleApp_Halts() {
	ctx := context.Background()
	delivered, halted := make(chan LetterWritten), make(chan keyhold.Halted, 1)
	moved := make(chan struct{}) // closed once the new address is known
	known := func(name string) bool {
		select {
		case <-moved:
			return true
		default:
			return name != "ada"
		}
	}
	app := keyhold.New(keyhold.Config{
		Name: "post", Store: memory.Open(), Transport: local.New(), Logger: slog.New(slog.DiscardHandler),
		Observer: keyhold.Observer{Halted: func(h keyhold.Halted) { halted <- h }}, // told beside the log
	})
	app.Register(Letters, keyhold.Handler[postman]{
		Name: "delivery", Categories: []string{"letter"}, SequentialBy: "to", StartFrom: keyhold.Oldest,
		New: func(string) postman { return postman{known, delivered} },
		On:  keyhold.Behavior[postman]{keyhold.On(postman.written)},
	})
	if err := app.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer app.Stop(ctx)

	if err := keyhold.Publish(ctx, app, LetterWritten{"ada", 1}, LetterWritten{"ada", 2}, LetterWritten{"bob", 1}); err != nil {
		log.Fatal(err)
	}
	fmt.Println("delivered", <-delivered)

	<-halted
	halts, err := app.Halts(ctx, "delivery", keyhold.Unit{}, 100)
	if err != nil {
		log.Fatal(err)
	}
	for _, h := range halts {
		fmt.Printf("%s is halted at %d: %s\n", h.Unit, h.Sequence, h.Error)
	}

	close(moved)
	if _, err := admin.Resume(ctx, app, keyhold.Unit{Name: "delivery", Key: "ada"}); err != nil {
		log.Fatal(err)
	}
	fmt.Println("delivered", <-delivered)
	fmt.Println("delivered", <-delivered)
	// Output:
	// delivered {bob 1}
	// delivery/ada is halted at 1: no such address
	// delivered {ada 1}
	// delivered {ada 2}
}
