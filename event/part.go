package event

import (
	"hash/fnv"
	"strconv"
)

// Parts is how many slices the lane space is cut into. A part is leased by one node, which relays its lanes and looks after what only the
// store knows of them. Parts are durable: the number cannot change.
const Parts = 64

// Part is one of these slices, from 0.
type Part uint8

func (p Part) String() string { return strconv.Itoa(int(p)) }

// PartOf gives the part of a partition (category, key), or of a unit (name, key). Both lanes of a partition are in one part. The rule,
// FNV-1a (64 bits) of owner, a zero byte and key, folded and modulo [Parts], is durable: stores keep its results.
func PartOf(owner, key string) Part {
	h := fnv.New64a()
	h.Write([]byte(owner)) // never an error
	h.Write([]byte{0})
	h.Write([]byte(key))
	sum := h.Sum64()
	return Part((sum ^ sum>>32) % Parts)
}

// Part is the part that the lane is in.
func (r LaneRef) Part() Part { return PartOf(r.Category, r.Key) }

// Part is the part whose owner looks after what only the store knows of the unit.
func (u Unit) Part() Part { return PartOf(u.Name, u.Key) }

// PartName is the name of the units that stand for parts: they are leased, raised and fenced like any other. No handler and no
// entity kind can have it.
const PartName = ownPrefix + "part"

// Unit is the unit that stands for a part.
func (p Part) Unit() Unit { return Unit{Name: PartName, Key: p.String()} }
