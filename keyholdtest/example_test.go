package keyholdtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/keyholdtest"
)

// What is tested here: an entity that rents rooms, and a handler that invoices each guest.

type (
	Book   struct{ Guest string }
	Booked struct{ Room string }

	RoomBooked struct {
		Room  string `json:"room"`
		Guest string `json:"guest"`
	}
)

var _ = keyhold.Type[RoomBooked]("room.booked", 1)

type room struct{ Guest string }

var Room = keyhold.Entity[room]{
	Kind: "room", Version: 1,
	Commands: keyhold.Commands[room]{
		keyhold.OnCommand(func(c keyhold.Command, r room, in *Book) (*Booked, error) {
			if r.Guest != "" {
				return nil, keyhold.Reject("room %s is taken by %s", c.ID(), r.Guest)
			}
			c.Emit(RoomBooked{Room: c.ID(), Guest: in.Guest})
			return &Booked{Room: c.ID()}, nil
		}),
	},
	Fold: keyhold.Fold[room]{keyhold.OnEvent(func(r room, e RoomBooked) room { return room{Guest: e.Guest} })},
}

type invoices struct{ send func(guest string) error }

// booked notes the invoice in a table, and sends it.
func (i invoices) booked(ctx keyhold.Context, e RoomBooked) error {
	if err := i.send(e.Guest); err != nil {
		return err
	}
	_, err := ctx.Tx().ExecContext(ctx, `INSERT INTO invoices (guest, room) VALUES ($1, $2)`, e.Guest, e.Room)
	return err
}

func Invoices(send func(guest string) error) keyhold.Handler[invoices] {
	return keyhold.Handler[invoices]{
		Name: "invoices", Categories: []string{"room"}, SequentialBy: "guest", StartFrom: keyhold.Oldest,
		New: func(string) invoices { return invoices{send} },
		On:  keyhold.Behavior[invoices]{keyhold.On(invoices.booked)},
	}
}

// output stands in for the *testing.T of a test, which an example does not have.
type output struct{ end []func() }

func (*output) Helper()                           {}
func (*output) Context() context.Context          { return context.Background() }
func (o *output) Cleanup(f func())                { o.end = append(o.end, f) }
func (*output) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (*output) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (o *output) done() {
	for _, f := range o.end {
		f()
	}
	fmt.Println("done")
}

// hotel is a store with the tables of the application.
func hotel(dir string) keyholdtest.Option {
	return keyholdtest.On(sqlite.New(sqlite.Config{
		Path: filepath.Join(dir, "hotel.db"), // in a test: t.TempDir()
		Setup: func(ctx context.Context, db eventstore.SQL) error {
			_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS invoices (guest TEXT, room TEXT)`)
			return err
		},
	}))
}

// Whatever holds passes without a word.
func ExampleEntity() {
	t := new(output) // in a test: its *testing.T
	defer t.done()
	keyholdtest.Entity(t, Room, "7").
		When(&Book{Guest: "ada"}).
		ThenEvents(RoomBooked{Room: "7", Guest: "ada"}).
		ThenReply(&Booked{Room: "7"})
	keyholdtest.Entity(t, Room, "8").
		Given(RoomBooked{Room: "8", Guest: "ada"}).
		When(&Book{Guest: "bob"}).
		ThenRejected("taken by ada").
		ThenEvents().
		ThenState(room{Guest: "ada"})
	// Output:
	// done
}

// What no test wants fails it without being asked for.
func ExampleEntityTest_When() {
	t := new(output)
	defer t.done()
	keyholdtest.Entity(t, Room, "8").
		Given(RoomBooked{Room: "8", Guest: "ada"}).
		When(&Book{Guest: "bob"})
	// Output:
	// room/8, *keyholdtest_test.Book: an error that the test did not expect: rejected: room 8 is taken by ada
	// done
}

// The same rows are there however a commit fails: here it was made, and the answer is lost.
func ExampleHandler() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	t := new(output)
	defer t.done()
	sent := func(string) error { return nil }
	keyholdtest.Handler(t, Invoices(sent), hotel(dir)).
		FailCommit(keyholdtest.After, 1).
		Given(RoomBooked{Room: "7", Guest: "ada"}, RoomBooked{Room: "8", Guest: "ada"}).
		ThenRows(`SELECT guest, room FROM invoices`, []any{"ada", "7"}, []any{"ada", "8"}).
		ThenAttempts(2)
	// Output:
	// done
}

// A key halts before the event that cannot be applied; when the halt is lifted, the event is tried again.
func ExampleHandlerTest_ThenHalted() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	t := new(output)
	defer t.done()
	refused := keyhold.Poison(errors.New("no such address"))
	h := keyholdtest.Handler(t, Invoices(func(guest string) error {
		if guest == "ada" {
			return refused
		}
		return nil
	}), hotel(dir))
	h.Given(RoomBooked{Room: "7", Guest: "ada"}, RoomBooked{Room: "8", Guest: "bob"}).
		ThenHalted("ada", "no such address").
		ThenRows(`SELECT guest FROM invoices`, []any{"bob"})
	refused = nil
	h.Resume("ada").
		ThenNotHalted().
		ThenRows(`SELECT guest FROM invoices`, []any{"bob"}, []any{"ada"})
	// Output:
	// done
}

// A Kit in the place of a test makes entities and handlers parts of one application.
func ExampleKit() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	t := new(output)
	defer t.done()
	k := keyholdtest.New(t, hotel(dir))
	seven := keyholdtest.Entity(k, Room, "7")
	invoices := keyholdtest.Handler(k, Invoices(func(string) error { return nil }))
	seven.When(&Book{Guest: "ada"}).ThenEvents(RoomBooked{Room: "7", Guest: "ada"})
	invoices.ThenRows(`SELECT guest FROM invoices`, []any{"ada"})
	k.Restart()
	invoices.ThenAttempts(0) // what was done is not done again
	// Output:
	// done
}
