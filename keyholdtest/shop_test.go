package keyholdtest_test

import (
	"errors"
	"maps"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/keyhold/keyhold"
)

// The domain of the tests: carts, which open, are filled, and are given up when nobody pays; and a store room that packs them.

type (
	Opened struct {
		Cart   string `json:"cart"`
		Client string `json:"client"`
	}
	Filled struct {
		Cart   string `json:"cart"`
		Client string `json:"client"`
		Item   string `json:"item"`
	}
	Expired struct {
		Cart   string `json:"cart"`
		Client string `json:"client"`
	}
	Foreign struct {
		Client string `json:"client"`
	}

	Open   struct{ Client string }
	Fill   struct{ Item string }
	Remind struct{ Item string }
	Items  struct{}

	Listed struct {
		Items map[string]int
	}

	Packed struct {
		Client string `json:"client"`
		Item   string `json:"item"`
	}
)

var (
	_ = keyhold.Type[Opened]("cart.opened", 1)
	_ = keyhold.Type[Filled]("cart.filled", 1)
	_ = keyhold.Type[Expired]("cart.expired", 1)
	_ = keyhold.Type[Foreign]("foreign", 1)
	_ = keyhold.Type[Open]("cart.open", 1)
	_ = keyhold.Type[Fill]("cart.fill", 1)
	_ = keyhold.Type[Remind]("cart.remind", 1)
	_ = keyhold.Type[Listed]("cart.listed", 1)
	_ = keyhold.Type[Packed]("parcel.packed", 1)
)

// cart is the state of a cart. It has a map, so that what it is made of can be spoilt.
type cart struct {
	Client string         `json:"client"`
	Items  map[string]int `json:"items"`
}

func (c cart) opened(e Opened) cart { return cart{Client: e.Client} }

func (c cart) filled(e Filled) cart {
	c.Items = maps.Clone(c.Items)
	if c.Items == nil {
		c.Items = map[string]int{}
	}
	c.Items[e.Item]++
	return c
}

func (c cart) expired(Expired) cart { return cart{} }

func open(c keyhold.Command, s cart, in *Open) (*Listed, error) {
	if s.Client != "" {
		return nil, keyhold.Reject("cart %s is open already", c.ID())
	}
	c.Emit(Opened{Cart: c.ID(), Client: in.Client})
	c.StartTimer("expire", time.Hour)
	return &Listed{}, nil
}

func fill(c keyhold.Command, s cart, in *Fill) (*Listed, error) {
	if in.Item == "" {
		return nil, errNothing
	}
	c.Emit(Filled{Cart: c.ID(), Client: s.Client, Item: in.Item})
	c.Send(keyhold.Ref{Kind: "cart", ID: "reminders"}, &Remind{Item: in.Item})
	items := maps.Clone(s.Items)
	if items == nil {
		items = map[string]int{}
	}
	items[in.Item]++
	return &Listed{Items: items}, nil
}

var errNothing = errors.New("nothing to fill in")

// Cart is the entity of the tests.
func Cart() keyhold.Entity[cart] {
	return keyhold.Entity[cart]{
		Kind: "cart", Version: 1,
		Commands: keyhold.Commands[cart]{
			keyhold.OnCommand(open),
			keyhold.OnCommand(fill),
			keyhold.OnCommand(func(keyhold.Command, cart, *Remind) (*Listed, error) { return nil, nil }),
		},
		Queries: keyhold.Queries[cart]{
			keyhold.OnQuery(func(_ keyhold.Query, s cart, _ *Items) (*Listed, error) { return &Listed{Items: s.Items}, nil }),
		},
		Fold: keyhold.Fold[cart]{
			keyhold.OnEvent(cart.opened), keyhold.OnEvent(cart.filled), keyhold.OnEvent(cart.expired),
		},
		OnTimer: func(c keyhold.Command, s cart, name string) error {
			c.Emit(Expired{Cart: c.ID(), Client: s.Client})
			return nil
		},
	}
}

// packer is a handler that does what its test says.
type packer struct {
	do func(ctx keyhold.Context, e Filled) error
}

func (p packer) filled(ctx keyhold.Context, e Filled) error { return p.do(ctx, e) }

// Packing makes a handler of a func.
func Packing(do func(ctx keyhold.Context, e Filled) error) keyhold.Handler[packer] {
	return keyhold.Handler[packer]{
		Name: "packing", Categories: []string{"cart"}, SequentialBy: "client", StartFrom: keyhold.Oldest,
		Retry: keyhold.RetryPolicy{Attempts: 3, Min: 10 * time.Millisecond, Max: 40 * time.Millisecond},
		New:   func(string) packer { return packer{do} },
		On:    keyhold.Behavior[packer]{keyhold.On(packer.filled)},
	}
}

// Parcels is the category of what packing emits.
var Parcels = keyhold.Category{Name: "parcel", Key: "client", Events: []keyhold.EventType{keyhold.EventOf[Packed]()}}

// Labels is a handler of protobuf messages, in a category without a key.
func Labels(do func(ctx keyhold.Context, e *wrapperspb.StringValue) error) keyhold.Handler[labeller] {
	return keyhold.Handler[labeller]{
		Name: "labels", Categories: []string{"label"}, StartFrom: keyhold.Oldest,
		Retry: keyhold.RetryPolicy{Attempts: 1},
		New:   func(string) labeller { return labeller{do} },
		On:    keyhold.Behavior[labeller]{keyhold.On(labeller.label)},
	}
}

type labeller struct {
	do func(ctx keyhold.Context, e *wrapperspb.StringValue) error
}

func (l labeller) label(ctx keyhold.Context, e *wrapperspb.StringValue) error { return l.do(ctx, e) }
