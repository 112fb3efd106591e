package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheSeedAloneDecidesThePlan(t *testing.T) {
	t.Parallel()
	p := plan{Orders: 2000, Clients: 50, Seed: 7}
	if diff := cmp.Diff(p.orders(), p.orders()); diff != "" {
		t.Error(diff)
	}
	other := p
	other.Seed = 8
	if cmp.Equal(p.orders(), other.orders()) {
		t.Error("another seed gives the same plan")
	}
}

func TestEveryClientOrdersAndPaysAlike(t *testing.T) {
	t.Parallel()
	all := plan{Orders: 2000, Clients: 50, Seed: 1}.orders()
	clients := perClient(all)
	if len(clients) != 50 || payments(all) != 500 {
		t.Errorf("%d clients, %d payments", len(clients), payments(all))
	}
	ids := map[string]bool{}
	for _, o := range all {
		ids[o.ID] = true
		if clients[o.Client] != 40 || o.Cents < 100 {
			t.Errorf("order %+v, one of %d of its client", o, clients[o.Client])
		}
	}
	if len(ids) != 2000 {
		t.Errorf("%d different ids", len(ids))
	}
}

func TestTheRefusedOrderComesEarlyAndHasOthersBehindIt(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		p := plan{Orders: 200, Clients: 12, Seed: seed}
		all := p.orders()
		r := refused(all)
		before, behind := 0, 0
		for i, o := range all {
			switch {
			case o.Client != r.Client || o.ID == r.ID:
			case o.ID < r.ID:
				before++
			default:
				behind++
			}
			if o.ID == r.ID && i > p.Clients {
				t.Errorf("seed %d: refused is order %d", seed, i)
			}
		}
		if before != 1 || behind < 5 {
			t.Errorf("seed %d: %d before it, %d behind", seed, before, behind)
		}
	}
}

func TestPlansThatShowNothingAreRefused(t *testing.T) {
	t.Parallel()
	for _, p := range []plan{{Orders: 2000, Clients: 1}, {Orders: 15, Clients: 2}, {Orders: 0, Clients: 50}, {Orders: 1_000_000, Clients: 50}} {
		if p.check() == nil {
			t.Errorf("%+v is accepted", p)
		}
	}
	if err := (plan{Orders: 200, Clients: 12}).check(); err != nil {
		t.Error(err)
	}
}
