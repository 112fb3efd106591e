package transport

import (
	"errors"
	"sync/atomic"
)

// ErrClaimed: a transport is another user's.
var ErrClaimed = errors.New("it is claimed already")

// Claim is what a transport answers [Transport].Claim by. The zero value is free; it must not be copied. It may be used concurrently.
type Claim struct{ by atomic.Pointer[claimant] }

// claimant tells one user from another: it has a size, so that no two have one address.
type claimant struct{ _ byte }

// Take gives the claim to one caller at a time; the others get [ErrClaimed]. It neither blocks nor waits. release is idempotent, and takes the claim from nobody else.
func (c *Claim) Take() (release func(), err error) {
	own := new(claimant)
	if !c.by.CompareAndSwap(nil, own) {
		return nil, ErrClaimed
	}
	return func() { c.by.CompareAndSwap(own, nil) }, nil
}
