package guide_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/transport/inline"
)

// The samples of keys.md: a hotel that had no key at first.

type (
	BookRoom   struct{ Guest string }
	RoomBooked struct {
		Room  string `json:"room"`
		Guest string `json:"guest"`
	}
)

var _ = keyhold.Type[RoomBooked]("room.booked", 1)

var Room = keyhold.Entity[int]{
	Kind: "room", Version: 1,
	Commands: keyhold.Commands[int]{keyhold.OnCommand(func(c keyhold.Command, _ int, in *BookRoom) (*Done, error) {
		c.Emit(RoomBooked{Room: c.ID(), Guest: in.Guest})
		return &Done{}, nil
	})},
	Fold: keyhold.Fold[int]{keyhold.OnEvent(func(n int, _ RoomBooked) int { return n + 1 })},
}

var bills = keyhold.Handler[struct{}]{
	Name: "bills", Categories: []string{"room"}, SequentialBy: "guest", StartFrom: keyhold.Oldest,
	New: func(string) struct{} { return struct{}{} },
	On:  keyhold.Behavior[struct{}]{keyhold.On(func(struct{}, keyhold.Context, RoomBooked) error { return nil })},
}

// hotel starts the hotel on a store, books a room, and stops.
func hotel(store *memory.Store, declare func(*keyhold.App)) error {
	ctx := context.Background()
	app := keyhold.New(keyhold.Config{Name: "hotel", Store: store, Transport: inline.New(), Logger: slog.New(slog.DiscardHandler)})
	declare(app)
	if err := app.Start(ctx); err != nil {
		return err
	}
	defer app.Stop(ctx)
	_, err := app.Ask(ctx, Room.ID("7"), &BookRoom{Guest: "ada"})
	return err
}

func ExampleCategory_late() {
	store := memory.Open()
	fmt.Println(hotel(store, func(app *keyhold.App) { app.Register(Room) }))
	fmt.Println(hotel(store, func(app *keyhold.App) { app.Register(Room, bills) }))
	// Output:
	// <nil>
	// start hotel: category "room": the store has it with no key, this program declares the key "guest" (by handler "bills"), and it has events: drop SequentialBy and the Key, or begin with an empty store and keyhold.Category{Name: "room", Key: "guest"}, declared before the first event
}

func ExampleCategory_inTime() {
	store := memory.Open()
	fmt.Println(hotel(store, func(app *keyhold.App) {
		app.Register(Room, keyhold.Category{Name: "room", Key: "guest"})
	}))
	fmt.Println(hotel(store, func(app *keyhold.App) { app.Register(Room, bills) }))
	// Output:
	// <nil>
	// <nil>
}
