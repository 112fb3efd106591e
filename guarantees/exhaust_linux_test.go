package guarantees

import "syscall"

// exhaust ends the process the way that a lack of memory does: the runtime itself gives up, and nothing can be recovered.
func exhaust() {
	const none = 1 << 20 // less than what is mapped already, so that nothing more can be
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: none, Max: none}); err != nil {
		panic(err)
	}
	var all [][]byte
	for {
		all = append(all, make([]byte, 64<<20))
		all[len(all)-1][0] = 1
	}
}
