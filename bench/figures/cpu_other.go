//go:build !unix

package figures

import "time"

// CPU is not known here.
func CPU() time.Duration { return 0 }
