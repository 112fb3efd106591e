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

// What a room is asked, what it answers, and what happened.
type (
	Book       struct{ Guest string }
	Booked     struct{ Room string }
	RoomBooked struct {
		Room  string `json:"room"`
		Guest string `json:"guest"`
	}
)

// The wire name is what is stored with an event.
var _ = keyhold.Type[RoomBooked]("room.booked", 1)

// Room is an entity: one actor per room. Its state is the guest, "" for none.
var Room = keyhold.Entity[string]{
	Kind: "room", Version: 1,
	Commands: keyhold.Commands[string]{
		keyhold.OnCommand(func(c keyhold.Command, guest string, in *Book) (*Booked, error) {
			if guest != "" {
				return nil, keyhold.Reject("room %s is taken by %s", c.ID(), guest)
			}
			c.Emit(RoomBooked{Room: c.ID(), Guest: in.Guest})
			return &Booked{Room: c.ID()}, nil
		}),
	},
	Fold: keyhold.Fold[string]{keyhold.OnEvent(func(_ string, e RoomBooked) string { return e.Guest })},
}

// Greeter is the behavior of a handler: one actor per guest. What it has in its fields is a cache, never the truth.
type Greeter struct{ guest string }

func (g *Greeter) booked(_ keyhold.Context, e RoomBooked) error {
	fmt.Printf("%s: your room is %s\n", g.guest, e.Room)
	return nil
}

var Greeting = keyhold.Handler[*Greeter]{
	Name:         "greeting",
	Categories:   []string{"room"},
	SequentialBy: "guest",
	StartFrom:    keyhold.Oldest,
	New:          func(guest string) *Greeter { return &Greeter{guest} },
	On:           keyhold.Behavior[*Greeter]{keyhold.On((*Greeter).booked)},
}

// An entity and a handler. Here they live in memory, and the inline transport has every handler done before an ask returns; a real
// program takes a sqlite.Store and the local transport.
func ExampleApp() {
	ctx := context.Background()
	app := keyhold.New(keyhold.Config{
		Name: "hotel", Store: memory.Open(), Transport: inline.New(), Logger: slog.New(slog.DiscardHandler),
	})
	app.Register(Room, Greeting)
	if err := app.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer app.Stop(ctx)

	booked, err := keyhold.Ask[*Booked](ctx, app, Room.ID("7"), &Book{Guest: "ada"})
	fmt.Println("booked", booked.Room, err)

	_, err = keyhold.Ask[*Booked](ctx, app, Room.ID("7"), &Book{Guest: "bob"})
	fmt.Println(errors.Is(err, keyhold.ErrRejected), err)
	// Output:
	// ada: your room is 7
	// booked 7 <nil>
	// true rejected: room 7 is taken by ada
}
