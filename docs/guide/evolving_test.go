package guide_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	paymentv1 "github.com/keyhold/keyhold/examples/orders/proto/payment/v1"
	"github.com/keyhold/keyhold/keyholdtest"
	"github.com/keyhold/keyhold/transport/inline"
)

// The samples of evolving.md: a library, in which each kind of change happened once.

// A field more.

type BookLent struct {
	BookID string `json:"book_id"`
	Reader string `json:"reader"`
	Days   int    `json:"days"` // since spring; 0 = lent before that, for 28 days
}

var _ = keyhold.Type[BookLent]("book.lent", 1)

type book struct {
	Reader string `json:"reader"`
	Days   int    `json:"days"`
}

func (b book) lent(e BookLent) book {
	days := e.Days
	if days == 0 {
		days = 28
	}
	return book{Reader: e.Reader, Days: days}
}

// What it means.

// BookDamagedV1 has the damage in whole euros. It is kept for what was stored.
type BookDamagedV1 struct {
	BookID string `json:"book_id"`
	Damage int64  `json:"damage"`
}

type BookDamaged struct {
	BookID   string `json:"book_id"`
	Cents    int64  `json:"cents"`
	Currency string `json:"currency"`
}

var (
	_ = keyhold.Type[BookDamagedV1]("book.damaged", 1)
	_ = keyhold.Type[BookDamaged]("book.damaged", 2)
	_ = keyhold.Upcast(func(e BookDamagedV1) BookDamaged {
		return BookDamaged{BookID: e.BookID, Cents: 100 * e.Damage, Currency: "EUR"}
	})
)

func (b book) damaged(e BookDamaged) book { return b }

// Without the old type.

type BookReturned struct {
	BookID string `json:"book_id"`
	Shelf  string `json:"shelf"`
}

var (
	_ = keyhold.Type[BookReturned]("book.returned", 3)
	_ = keyhold.UpcastJSON("book.returned", 1, func(fields map[string]any) error {
		fields["place"] = fields["room"] // version 2 called it so
		delete(fields, "room")
		return nil
	})
	_ = keyhold.UpcastJSON("book.returned", 2, func(fields map[string]any) error {
		place, ok := fields["place"].(string)
		if !ok {
			return fmt.Errorf("place is %v", fields["place"])
		}
		fields["shelf"] = place + "/1"
		return nil
	})
)

func (b book) returned(e BookReturned) book { return book{} }

// A field in two.

type ReaderJoinedV1 struct {
	ReaderID string `json:"reader_id"`
	Name     string `json:"name"`
}

type ReaderJoined struct {
	ReaderID string `json:"reader_id"`
	Given    string `json:"given"`
	Family   string `json:"family"`
}

var (
	_ = keyhold.Type[ReaderJoinedV1]("reader.joined", 1)
	_ = keyhold.Type[ReaderJoined]("reader.joined", 2)
	_ = keyhold.TryUpcast(func(e ReaderJoinedV1) (ReaderJoined, error) {
		given, family, ok := strings.Cut(e.Name, " ")
		if !ok {
			return ReaderJoined{}, fmt.Errorf("%q is no given and family name", e.Name)
		}
		return ReaderJoined{ReaderID: e.ReaderID, Given: given, Family: family}, nil
	})
)

// Another name.

// BookLost was renamed: it is stored as book.missing from now on.
type (
	BookLost    struct{ BookID string }
	BookMissing struct{ BookID string }
)

var (
	_ = keyhold.Type[BookLost]("book.lost", 1)
	_ = keyhold.Type[BookMissing]("book.missing", 1)
	_ = keyhold.Upcast(func(e BookLost) BookMissing { return BookMissing(e) })
)

func (b book) missing(e BookMissing) book { return book{Reader: "nobody knows"} }

// Protobuf.

type FeePaid struct {
	FeeID string `json:"fee_id"`
	Cents int64  `json:"cents"`
}

var (
	_ = keyhold.Type[FeePaid]("fee.paid", 1)
	_ = keyhold.Upcast(func(e FeePaid) *paymentv1.PaymentReceived {
		return &paymentv1.PaymentReceived{PaymentId: e.FeeID, Cents: e.Cents}
	})
)

// Gone.

// BookStamped is emitted by nobody any more; what was stored is passed over.
type BookStamped struct{ BookID string }

var _ = keyhold.Type[BookStamped]("book.stamped", 1)

func (b book) stamped(BookStamped) book { return b }

type Lend struct {
	Reader string `json:"reader"`
	Days   int    `json:"days"`
}

type Done struct{}

var Book = keyhold.Entity[book]{
	Kind:    "book",
	Version: 2, // of the struct book; it has Days since spring
	Commands: keyhold.Commands[book]{
		keyhold.OnCommand(func(c keyhold.Command, _ book, in *Lend) (*Done, error) {
			c.Emit(BookLent{BookID: c.ID(), Reader: in.Reader, Days: in.Days})
			return &Done{}, nil
		}),
	},
	Fold: keyhold.Fold[book]{
		keyhold.OnEvent(book.lent),
		keyhold.OnEvent(book.damaged),
		keyhold.OnEvent(book.returned),
		keyhold.OnEvent(book.missing),
		keyhold.OnEvent(book.stamped),
	},
}

func TestDamageThatWasStoredInEurosIsInCents(t *testing.T) {
	t.Parallel()
	total := 0
	damages := keyhold.Handler[struct{}]{
		Name: "damages", Categories: []string{"book"}, New: func(string) struct{} { return struct{}{} },
		On: keyhold.Behavior[struct{}]{keyhold.On(func(_ struct{}, _ keyhold.Context, e BookDamaged) error {
			total += int(e.Cents)
			return nil
		})},
	}
	keyholdtest.Handler(t, damages, keyholdtest.With(Book)).
		Given(keyhold.For("b-1", BookDamagedV1{BookID: "b-1", Damage: 3}))
	if total != 300 {
		t.Errorf("damage of %d cents, want 300", total)
	}
}

var bookOne = event.Stream{Kind: "book", ID: "b-1"}

func TestABookLentBeforeSpringIsLentFor28Days(t *testing.T) {
	t.Parallel()
	keyholdtest.Entity(t, Book, "b-1", wasStored(t, bookOne, old("book.lent", 1, `{"book_id":"b-1","reader":"ada"}`))).
		ThenState(book{Reader: "ada", Days: 28})
}

func TestABookReturnedInOlderReleasesIsReturned(t *testing.T) {
	t.Parallel()
	keyholdtest.Entity(t, Book, "b-1", wasStored(t, bookOne,
		old("book.lent", 1, `{"book_id":"b-1","reader":"ada","days":7}`), old("book.returned", 1, `{"book_id":"b-1","room":"north"}`),
		old("book.lent", 1, `{"book_id":"b-1","reader":"bob","days":7}`), old("book.returned", 2, `{"book_id":"b-1","place":"north"}`))).
		ThenState(book{})
}

func TestWhatWasStoredUnderAnotherNameIsRead(t *testing.T) {
	t.Parallel()
	keyholdtest.Entity(t, Book, "b-1", wasStored(t, bookOne, old("book.stamped", 1, `{}`), old("book.lost", 1, `{"BookID":"b-1"}`))).
		ThenState(book{Reader: "nobody knows"})
}

var reader = keyhold.Entity[string]{
	Kind: "reader", Version: 1,
	Commands: keyhold.Commands[string]{keyhold.OnCommand(func(keyhold.Command, string, *Lend) (*Done, error) { return nil, nil })},
	Fold:     keyhold.Fold[string]{keyhold.OnEvent(func(_ string, e ReaderJoined) string { return e.Family })},
}

func TestANameIsSplit(t *testing.T) {
	t.Parallel()
	keyholdtest.Entity(t, reader, "r-1").Given(ReaderJoinedV1{ReaderID: "r-1", Name: "Ada Lovelace"}).ThenState("Lovelace")
}

var fee = keyhold.Entity[int64]{
	Kind: "fee", Version: 1,
	Commands: keyhold.Commands[int64]{keyhold.OnCommand(func(keyhold.Command, int64, *Lend) (*Done, error) { return nil, nil })},
	Fold:     keyhold.Fold[int64]{keyhold.OnEvent(func(_ int64, e *paymentv1.PaymentReceived) int64 { return e.GetCents() })},
}

func TestAFeePaidBeforeProtobufIsPaid(t *testing.T) {
	t.Parallel()
	stream := event.Stream{Kind: "fee", ID: "f-1"}
	keyholdtest.Entity(t, fee, "f-1", wasStored(t, stream, old("fee.paid", 1, `{"fee_id":"f-1","cents":250}`))).ThenState(250)
}

// What a start says of a version that nothing reads.
func ExampleUpcast_missing() {
	store := memory.Open()
	run := func(v keyhold.Declaration) error {
		app := keyhold.New(keyhold.Config{Name: "library", Store: store, Transport: inline.New(), Logger: slog.New(slog.DiscardHandler)})
		app.Register(v)
		if err := app.Start(context.Background()); err != nil {
			return err
		}
		defer app.Stop(context.Background())
		_, err := app.Ask(context.Background(), keyhold.Ref{Kind: "visit", ID: "v-1"}, &Lend{})
		return err
	}
	fmt.Println(run(visits[VisitedV1]()))
	fmt.Println(run(visits[Visited]()))
	// Output:
	// <nil>
	// start library: type "library.visited" version 1: the store may have some in category "visit", and this program has no use for them, which entity "visit" would meet: add a keyhold.Upcast from its Go type, or keyhold.UpcastJSON("library.visited", 1, ...), or keep its Go type and a case for it
}

type (
	VisitedV1 struct{}
	Visited   struct{}
)

var (
	_ = keyhold.Type[VisitedV1]("library.visited", 1)
	_ = keyhold.Type[Visited]("library.visited", 2)
)

func visits[E any]() keyhold.Entity[int] {
	return keyhold.Entity[int]{
		Kind: "visit", Version: 1,
		Commands: keyhold.Commands[int]{keyhold.OnCommand(func(c keyhold.Command, _ int, _ *Lend) (*Done, error) {
			var e E
			c.Emit(e)
			return nil, nil
		})},
		Fold: keyhold.Fold[int]{keyhold.OnEvent(func(n int, _ E) int { return n + 1 })},
	}
}

// A snapshot of version 1 of the state, in which there were no Days, is not used.
func TestASnapshotOfTheOlderStateIsNotUsed(t *testing.T) {
	t.Parallel()
	store := memory.Open()
	if _, err := store.Start(t.Context(), eventstore.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	lent := old("book.lent", 1, `{"book_id":"b-1","reader":"ada","days":7}`)
	lent.ID, lent.Encoding, lent.Category, lent.Key = "e-1", event.JSON, "book", event.Bucket("b-1", 64)
	_, err := store.Begin("an older release").Commit(t.Context(), eventstore.Changes{
		Append:   []eventstore.Append{{Stream: bookOne, Events: []event.Envelope{lent}}},
		Snapshot: &eventstore.Snapshot{Stream: bookOne, Version: 1, StateVersion: 1, Data: []byte(`{"reader":"ada"}`), Encoding: event.JSON},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	keyholdtest.Entity(t, Book, "b-1", keyholdtest.On(store)).ThenState(book{Reader: "ada", Days: 7})
}
