// Package child runs programs that end with this one, whatever ends it: a panic, os.Exit, SIGKILL.
//
// A [Home] is a temporary folder and a watcher, a few lines of sh, which waits for the end of a pipe that only this process holds.
// When it comes the watcher ends what runs in the home and removes the folder. So nothing has to be cleaned up in order, and a
// test that panics leaves neither a server nor its files.
//
// A [Process] can be killed and frozen together with the processes it has started. Nothing here starts a goroutine.
//
// Reading order: home.go, process.go; tests.go for tests that need programs which may not be installed.
package child
