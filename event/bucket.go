package event

import (
	"hash/fnv"
	"strconv"
)

// Bucket is the partition key of an event in a category without a key field: "0" to "n-1", by the entity's id, or
// whatever else its publisher names. All events of one id share a bucket, and so keep their order.
//
// The rule is FNV-1a (64 bits) of the id's bytes, modulo n. Keys are durable: neither the rule nor, while a category has events, n can
// change. n is at least 1; less counts as 1.
func Bucket(id string, n int) string {
	h := fnv.New64a()
	h.Write([]byte(id)) // never an error
	return strconv.FormatUint(h.Sum64()%uint64(max(n, 1)), 10)
}
