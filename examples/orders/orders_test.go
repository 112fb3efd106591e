package orders_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/examples/orders"
)

func TestAnOrderIsPlacedPaidAndShipped(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.place(t, "o-1", "c-1")
	s.place(t, "o-2", "c-1")
	s.pay(t, "p-1", "o-1", 4200)

	want := orders.View{OrderID: "o-1", ClientID: "c-1", Cents: 4200, Status: orders.Paid}
	if diff := cmp.Diff(want, s.get(t, "o-1")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"o-1", "o-2"}, s.shipped(t, "c-1")); diff != "" {
		t.Error(diff)
	}
	row := s.column(t, `SELECT orders || ' orders, ' || paid || ' paid, ' || cents FROM orders_per_client WHERE client_id = 'c-1'`)
	if diff := cmp.Diff([]string{"2 orders, 1 paid, 8400"}, row); diff != "" {
		t.Error(diff)
	}
}

func TestTheStateOfAnOrderSurvivesTheProcess(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.place(t, "o-1", "c-1")
	s.pay(t, "p-1", "o-1", 4200)
	s.restart(t)
	if got := s.get(t, "o-1").Status; got != orders.Paid {
		t.Errorf("status %q", got)
	}
}

func TestACancelledOrderIsCalledBackAndNotCounted(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.place(t, "o-1", "c-1")
	s.place(t, "o-2", "c-1")
	if _, err := keyhold.Ask[*orders.Done](t.Context(), s.App, orders.Order.ID("o-1"), &orders.CancelOrder{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"o-1"}, s.column(t, `SELECT order_id FROM shipments WHERE recalled`)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"1"}, s.column(t, `SELECT orders FROM orders_per_client`)); diff != "" {
		t.Error(diff)
	}
}

// A payment that the order refuses undoes nothing but the order's own decision.
func TestAPaymentThatIsTooSmallLeavesTheOrderOpen(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.place(t, "o-1", "c-1")
	s.pay(t, "p-1", "o-1", 100)
	s.pay(t, "p-2", "o-1", 4200)
	if got := s.get(t, "o-1").Status; got != orders.Paid {
		t.Errorf("status %q", got)
	}
}

func TestACommandAskedAgainIsDoneOnceAndAnsweredTheSame(t *testing.T) {
	t.Parallel()
	s := open(t)
	for range 3 {
		_, err := keyhold.Ask[*orders.Done](t.Context(), s.App, orders.Order.ID("o-1"),
			&orders.PlaceOrder{ClientID: "c-1", Cents: 4200}, keyhold.CommandID("the client's own"))
		if err != nil {
			t.Fatal(err)
		}
		s.restart(t)
	}
	if diff := cmp.Diff([]string{"o-1"}, s.shipped(t, "c-1")); diff != "" {
		t.Error(diff)
	}
}

func TestAnOrderWithoutAClientIsRefusedWhereItIsPlaced(t *testing.T) {
	t.Parallel()
	s := open(t)
	_, err := keyhold.Ask[*orders.Done](t.Context(), s.App, orders.Order.ID("o-1"), &orders.PlaceOrder{Cents: 4200})
	if !errors.Is(err, keyhold.ErrBadKey) {
		t.Errorf("got %v", err)
	}
}
