package postgres

import (
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT, which package syscall does not name.
const tcpUserTimeout = 18

// limitSilence ends a connection on which what was sent is not acknowledged for so long. It is kept as it is where the system refuses.
func limitSilence(fd uintptr, patience time.Duration) {
	_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(patience.Milliseconds()))
}
