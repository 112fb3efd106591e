package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
)

// plan is what is to happen. Everything in it follows from these few numbers.
type plan struct {
	Orders   int
	Clients  int
	Askers   int // orders being asked for at once
	Parallel int // clients that must have been in shipping at once
	Seed     uint64
	Redis    bool // the transport; else local
	Postgres bool // the store; else SQLite
	Nodes    int  // processes at the start, where there can be several
	Stay     bool // servers do, until a signal
}

// paidEvery: one order in so many is paid.
const paidEvery = 4

func (p plan) check() error {
	if p.Clients < 2 || p.Clients > 999 || p.Orders < 8*p.Clients || p.Orders > 99_999 {
		return errors.New("set -clients to 2 to 999, and -orders to 8 for each client at least, 99999 at most")
	}
	return nil
}

// order is an order as its client wants it.
type order struct {
	ID     string `json:"id"`
	Client string `json:"client"`
	Cents  int64  `json:"cents"`
	Paid   bool   `json:"paid"` // the client pays it at once
}

// orders gives all orders in the order of asking: the clients' mixed at random, by the seed alone.
func (p plan) orders() []order {
	random := rand.New(rand.NewPCG(p.Seed, 0))
	all := make([]order, p.Orders)
	for i := range all {
		all[i] = order{
			Client: fmt.Sprintf("client-%02d", i%p.Clients+1),
			Cents:  100 + random.Int64N(20_000),
			Paid:   i/p.Clients%paidEvery == 0,
		}
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i := range all {
		all[i].ID = fmt.Sprintf("o-%04d", i+1)
	}
	return all
}

// refused picks the order that the carrier refuses: the first that is a client's second, so that it comes early and has many behind it.
func refused(all []order) order {
	seen := map[string]bool{}
	for _, o := range all {
		if seen[o.Client] {
			return o
		}
		seen[o.Client] = true
	}
	return order{}
}

// perClient counts orders by client.
func perClient(all []order) map[string]int {
	count := map[string]int{}
	for _, o := range all {
		count[o.Client]++
	}
	return count
}

func payments(all []order) int {
	n := 0
	for _, o := range all {
		if o.Paid {
			n++
		}
	}
	return n
}
