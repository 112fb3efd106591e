package eventstoretest

import (
	"fmt"
	"slices"

	"github.com/keyhold/keyhold/event"
)

var lanes = []check{
	{"lanes above the checkpoint are unpassed, in lane order", func(f *fixture) {
		f.publish(slices.Concat(f.events("order", "b", 2), f.events("order", "a", 1), backfill(f.events("order", "a", 1)...),
			f.events("payment", "a", 1), f.events("order", "c", 3))...)
		f.commit(advance(event.Unit{Name: "shipping", Key: "c"}, lane("order", "c"), 0, 3))
		f.commit(advance(event.Unit{Name: "shipping", Key: "b"}, lane("order", "b"), 0, 1))
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{orders, backfillLane("order", "a"), lane("order", "b")})
		f.same("of another handler", f.unpassed("billing", "order"), []event.LaneRef{orders, backfillLane("order", "a"), lane("order", "b"), lane("order", "c")})
		f.same("of another category", f.unpassed("shipping", "payment"), []event.LaneRef{lane("payment", "a")})
		f.same("of none", f.unpassed("shipping", "unknown"), []event.LaneRef{})
		f.publish(f.events("order", "A", 1)...)
		f.same("with a new lane", f.unpassed("shipping", "order"), []event.LaneRef{lane("order", "A"), orders, backfillLane("order", "a"), lane("order", "b")})
	}},
	{"a checkpoint without a lane is passed", func(f *fixture) {
		f.commit(advance(shipping, orders, 0, 5))
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{})
		f.publish(f.events("order", "a", 5)...)
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{})
		f.publish(f.events("order", "a", 1)...)
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{orders})
	}},
	{"pages of unpassed lanes are full and exact, with passed and halted lanes between", func(f *fixture) {
		var want []event.LaneRef
		for i := range 40 {
			key := fmt.Sprintf("k-%02d", i)
			l, u := lane("order", key), event.Unit{Name: "shipping", Key: key}
			f.publish(f.events("order", key, 1)...)
			switch i % 4 {
			case 1:
				f.commit(advance(u, l, 0, 1))
			case 2:
				f.halt(u, l, 1)
			default:
				want = append(want, l)
			}
		}
		var got []event.LaneRef
		for after := (event.LaneRef{}); ; {
			page, err := f.store.Unpassed(f.ctx, "shipping", "order", after, 7)
			f.must(err)
			got = append(got, page...)
			if len(page) < 7 {
				break
			}
			after = page[len(page)-1]
		}
		f.same("unpassed", got, want)
		page, err := f.store.Unpassed(f.ctx, "shipping", "order", lane("order", "k-03x"), 2)
		f.must(err)
		f.same("after a lane that is not there", page, []event.LaneRef{lane("order", "k-04"), lane("order", "k-07")})
	}},
	{"a halted unit leaves out all its lanes, and no other unit's", func(f *fixture) {
		f.publish(slices.Concat(f.events("order", "a", 1), backfill(f.events("order", "a", 1)...), f.events("payment", "a", 1), f.events("order", "b", 1))...)
		f.halt(shipping, orders, 1)
		f.same("orders", f.unpassed("shipping", "order"), []event.LaneRef{lane("order", "b")})
		f.same("payments", f.unpassed("shipping", "payment"), []event.LaneRef{})
		f.same("of another handler", f.unpassed("billing", "payment"), []event.LaneRef{lane("payment", "a")})
	}},
}
