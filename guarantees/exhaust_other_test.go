//go:build !linux

package guarantees

import "os"

// exhaust ends the process as an operating system does that has no memory left for it.
func exhaust() {
	p, err := os.FindProcess(os.Getpid())
	if err != nil {
		panic(err)
	}
	_ = p.Kill()
	select {}
}
