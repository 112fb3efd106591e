package guide_test

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/examples/orders"
	"github.com/keyhold/keyhold/keyholdtest"
)

// The samples of testing.md: a theatre, whose seats are reserved, paid for in time or freed, and whose desk prints tickets.

type (
	Reserve struct{ Guest string }
	Pay     struct{}
	WhoSits struct{}
	Sitting struct{ Guest string }

	SeatReserved struct {
		Seat  string `json:"seat"`
		Guest string `json:"guest"`
	}
	SeatPaid struct {
		Seat  string `json:"seat"`
		Guest string `json:"guest"`
	}
	SeatFreed struct {
		Seat  string `json:"seat"`
		Guest string `json:"guest"`
	}
)

var (
	_ = keyhold.Type[SeatReserved]("seat.reserved", 1)
	_ = keyhold.Type[SeatPaid]("seat.paid", 1)
	_ = keyhold.Type[SeatFreed]("seat.freed", 1)
	_ = keyhold.Type[CountTicket]("evening.count-ticket", 1)
	_ = keyhold.Type[TicketCounted]("evening.ticket-counted", 1)
)

type seat struct {
	Guest string `json:"guest"`
	Paid  bool   `json:"paid"`
}

var Seat = keyhold.Entity[seat]{
	Kind: "seat", Version: 1,
	Commands: keyhold.Commands[seat]{
		keyhold.OnCommand(func(c keyhold.Command, s seat, in *Reserve) (*Sitting, error) {
			if s.Guest != "" {
				return nil, keyhold.Reject("seat %s is taken", c.ID())
			}
			c.Emit(SeatReserved{Seat: c.ID(), Guest: in.Guest})
			c.StartTimer("unpaid", 15*time.Minute)
			return &Sitting{Guest: in.Guest}, nil
		}),
		keyhold.OnCommand(func(c keyhold.Command, s seat, _ *Pay) (*Sitting, error) {
			if s.Guest == "" {
				return nil, keyhold.Reject("nobody has reserved seat %s", c.ID())
			}
			c.Emit(SeatPaid{Seat: c.ID(), Guest: s.Guest})
			c.StopTimer("unpaid")
			return &Sitting{Guest: s.Guest}, nil
		}),
	},
	Queries: keyhold.Queries[seat]{
		keyhold.OnQuery(func(_ keyhold.Query, s seat, _ *WhoSits) (*Sitting, error) { return &Sitting{Guest: s.Guest}, nil }),
	},
	Fold: keyhold.Fold[seat]{
		keyhold.OnEvent(func(_ seat, e SeatReserved) seat { return seat{Guest: e.Guest} }),
		keyhold.OnEvent(func(s seat, e SeatPaid) seat { return seat{Guest: s.Guest, Paid: true} }),
		keyhold.OnEvent(func(seat, SeatFreed) seat { return seat{} }),
	},
	OnTimer: func(c keyhold.Command, s seat, _ string) error {
		c.Emit(SeatFreed{Seat: c.ID(), Guest: s.Guest})
		return nil
	},
}

type (
	CountTicket   struct{ Seat string }
	TicketCounted struct{ Seat string }
)

// Evening counts the tickets of an evening.
var Evening = keyhold.Entity[int]{
	Kind: "evening", Version: 1,
	Commands: keyhold.Commands[int]{
		keyhold.OnCommand(func(c keyhold.Command, _ int, in *CountTicket) (*Sitting, error) {
			c.Emit(TicketCounted(*in))
			return nil, nil
		}),
	},
	Fold: keyhold.Fold[int]{keyhold.OnEvent(func(n int, _ TicketCounted) int { return n + 1 })},
}

var errNoPaper = errors.New("the printer is out of paper")

// printer prints tickets, as long as there is paper.
type printer struct{ paper bool }

func (p *printer) print() error {
	if !p.paper {
		return errNoPaper
	}
	return nil
}

type ticketDesk struct{ printer *printer }

func (b ticketDesk) paid(ctx keyhold.Context, e SeatPaid) error {
	if err := b.printer.print(); err != nil {
		return err
	}
	if _, err := ctx.Tx().ExecContext(ctx, `INSERT INTO tickets (seat, guest) VALUES ($1, $2)`, e.Seat, e.Guest); err != nil {
		return err
	}
	ctx.Send(Evening.ID("today"), &CountTicket{Seat: e.Seat})
	return nil
}

func TicketDesk(p *printer, poison keyhold.Policy) keyhold.Handler[ticketDesk] {
	return keyhold.Handler[ticketDesk]{
		Name: "ticket-desk", Categories: []string{"seat"}, SequentialBy: "guest", OnPoison: poison,
		New: func(string) ticketDesk { return ticketDesk{p} },
		On:  keyhold.Behavior[ticketDesk]{keyhold.On(ticketDesk.paid)},
	}
}

func TestASeatIsReservedOnce(t *testing.T) {
	t.Parallel()
	keyholdtest.Entity(t, Seat, "a-1").
		When(&Reserve{Guest: "ada"}).
		ThenEvents(SeatReserved{Seat: "a-1", Guest: "ada"}).
		ThenReply(&Sitting{Guest: "ada"})

	keyholdtest.Entity(t, Seat, "a-1").
		Given(SeatReserved{Seat: "a-1", Guest: "ada"}).
		When(&Reserve{Guest: "bob"}).
		ThenRejected("is taken").
		ThenEvents().
		ThenState(seat{Guest: "ada"})
}

func TestASeatThatIsNotPaidForIsFreed(t *testing.T) {
	t.Parallel()
	keyholdtest.Run(t, func(t *testing.T, k *keyholdtest.Kit) {
		a1 := keyholdtest.Entity(k, Seat, "a-1").When(&Reserve{Guest: "ada"})
		k.Advance(14 * time.Minute)
		a1.ThenEvents()
		k.Advance(time.Minute)
		a1.ThenEvents(SeatFreed{Seat: "a-1", Guest: "ada"}).
			When(&WhoSits{}).ThenReply(&Sitting{})
	})
}

// theatre is an empty database with the tables of the application.
func theatre(t *testing.T) keyholdtest.Option {
	return keyholdtest.On(sqlite.New(sqlite.Config{
		Path: filepath.Join(t.TempDir(), "theatre.db"),
		Setup: func(ctx context.Context, db eventstore.SQL) error {
			_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS tickets (seat TEXT, guest TEXT)`)
			return err
		},
	}))
}

func TestATicketIsPrintedAndCounted(t *testing.T) {
	t.Parallel()
	keyholdtest.Handler(t, TicketDesk(&printer{paper: true}, keyhold.Halt), theatre(t), keyholdtest.With(Seat, Evening)).
		Given(SeatPaid{Seat: "a-1", Guest: "ada"}).
		ThenRows(`SELECT seat, guest FROM tickets`, []any{"a-1", "ada"}).
		ThenSent(Evening.ID("today"), &CountTicket{Seat: "a-1"})
}

func TestATicketIsThereOnceHoweverACommitFails(t *testing.T) {
	t.Parallel()
	for _, fault := range []keyholdtest.CommitFault{keyholdtest.Before, keyholdtest.After, keyholdtest.Unknown} {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			keyholdtest.Handler(t, TicketDesk(&printer{paper: true}, keyhold.Halt), theatre(t), keyholdtest.With(Seat, Evening)).
				FailCommit(fault, 1).
				Given(SeatPaid{Seat: "a-1", Guest: "ada"}).
				ThenRows(`SELECT seat FROM tickets`, []any{"a-1"})
		})
	}
}

func TestAGuestWaitsUntilThereIsPaper(t *testing.T) {
	t.Parallel()
	on := theatre(t)
	keyholdtest.Run(t, func(t *testing.T, k *keyholdtest.Kit) {
		p := &printer{}
		desk := keyholdtest.Handler(k, TicketDesk(p, keyhold.Halt))
		desk.Given(SeatPaid{Seat: "a-1", Guest: "ada"}).
			ThenAttempts(5).
			ThenHalted("ada", "out of paper")
		k.Restart()
		desk.ThenAttempts(0).
			ThenHalted("ada", "out of paper")
		p.paper = true
		desk.Resume("ada").
			ThenNotHalted().
			ThenRows(`SELECT seat FROM tickets`, []any{"a-1"})
	}, on, keyholdtest.With(Seat, Evening))
}

func TestWhatNobodyCanReadHaltsItsGuestAlone(t *testing.T) {
	t.Parallel()
	keyholdtest.Handler(t, TicketDesk(&printer{paper: true}, keyhold.Halt), theatre(t), keyholdtest.With(Seat, Evening)).
		GivenPoison(SeatPaid{Seat: "a-1", Guest: "ada"}).
		ThenHalted("ada", "undecodable").
		Given(SeatPaid{Seat: "a-2", Guest: "bob"}).
		ThenHalted("ada", "undecodable").
		ThenRows(`SELECT guest FROM tickets`, []any{"bob"})
}

func TestTicketsAreParkedInOrder(t *testing.T) {
	t.Parallel()
	on := theatre(t)
	keyholdtest.Run(t, func(t *testing.T, k *keyholdtest.Kit) {
		p := &printer{}
		desk := keyholdtest.Handler(k, TicketDesk(p, keyhold.ParkSequence))
		desk.Given(SeatPaid{Seat: "a-1", Guest: "ada"}, SeatPaid{Seat: "a-2", Guest: "ada"}).
			ThenParked("ada", "out of paper", SeatPaid{Seat: "a-1", Guest: "ada"}, SeatPaid{Seat: "a-2", Guest: "ada"})
		p.paper = true
		desk.Retry("ada").
			ThenParked("ada", "").
			ThenRows(`SELECT seat FROM tickets ORDER BY rowid`, []any{"a-1"}, []any{"a-2"})
	}, on, keyholdtest.With(Seat, Evening))
}

func TestATicketThatWasSetAsideIsReplayed(t *testing.T) {
	t.Parallel()
	on := theatre(t)
	keyholdtest.Run(t, func(t *testing.T, k *keyholdtest.Kit) {
		p := &printer{}
		desk := keyholdtest.Handler(k, TicketDesk(p, keyhold.Release))
		desk.Given(SeatPaid{Seat: "a-1", Guest: "ada"}).
			ThenDeadLettered("out of paper")
		p.paper = true
		desk.Replay().
			ThenDeadLettered().
			ThenRows(`SELECT seat FROM tickets`, []any{"a-1"})
	}, on, keyholdtest.With(Seat, Evening))
}

func TestAnEveningCountsWhatIsPaid(t *testing.T) {
	t.Parallel()
	k := keyholdtest.New(t, theatre(t))
	a1 := keyholdtest.Entity(k, Seat, "a-1")
	today := keyholdtest.Entity(k, Evening, "today")
	keyholdtest.Handler(k, TicketDesk(&printer{paper: true}, keyhold.Halt))
	a1.When(&Reserve{Guest: "ada"}).When(&Pay{})
	today.ThenState(1)
}

func TestAnOrderOfRelease1IsStillAnOrder(t *testing.T) {
	t.Parallel()
	db := unpacked(t, "../../examples/orders/testdata/releases/1/orders.db.gz") // a copy: what was recorded is never changed
	k := keyholdtest.New(t, keyholdtest.On(sqlite.Open(db)))
	order := keyholdtest.Entity(k, orders.Order, "o-1")
	shipping := keyholdtest.Handler(k, orders.Shipping(orders.FlatRate{Cents: 490}))
	order.When(&orders.GetOrder{}).
		ThenReply(&orders.View{OrderID: "o-1", ClientID: "c-1", Cents: 4200, Status: orders.Paid})
	shipping.ThenHalted("c-2", "no such address") // it was then, and is
}

func unpacked(t *testing.T, path string) string {
	t.Helper()
	from, err := os.Open(filepath.FromSlash(path))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	r, err := gzip.NewReader(from)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "orders.db")
	if err := os.WriteFile(to, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}
