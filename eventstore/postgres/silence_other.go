//go:build !linux

package postgres

import "time"

// limitSilence has nothing to set here: keepalives find out that the other side is gone, some time later.
func limitSilence(uintptr, time.Duration) {}
