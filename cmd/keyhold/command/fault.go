package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/keyhold/keyhold/eventstore"
)

// Exit codes. [ExitCode] gives that of an error.
const (
	ExitOK       = 0
	ExitError    = 1 // it did not work
	ExitUsage    = 2 // the command line says nothing that could be done
	ExitNotFound = 3 // there is no such handler, key, job, …
	ExitMoved    = 4 // the state does not allow it: it is not the one that the act was decided on, or a program has the store in use
	ExitDegraded = 5 // status: something is stopped
)

// fault is an error with an exit code of its own, and what the person can do about it.
type fault struct {
	code   int
	err    error
	advice string // "" = the error says it
	detail string // what is shown below, fit for a terminal
}

func (f *fault) Error() string {
	if f.advice == "" {
		return f.err.Error()
	}
	return f.err.Error() + "\n" + f.advice
}
func (f *fault) Unwrap() error { return f.err }

// misused is an error of the command line.
func misused(advice, format string, args ...any) error {
	return &fault{code: ExitUsage, err: fmt.Errorf(format, args...), advice: advice}
}

// missing is an error about something that is not there.
func missing(advice, format string, args ...any) error {
	return &fault{code: ExitNotFound, err: fmt.Errorf(format, args...), advice: advice}
}

// errDegraded says nothing: what status printed says it.
var errDegraded = &fault{code: ExitDegraded, err: errors.New("something is stopped")}

// ExitCode is the exit code that an error of the command asks for. An application that runs the command under its own root hands it
// to os.Exit.
func ExitCode(err error) int {
	var f *fault
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &f):
		return f.code
	case errors.Is(err, eventstore.ErrStateMoved):
		return ExitMoved
	case errors.Is(err, eventstore.ErrNotFound):
		return ExitNotFound
	}
	return ExitError
}

// Report writes an error as the command does: what happened, then what to do. It writes nothing where the output says it all.
func Report(w io.Writer, err error) {
	if err == nil || errors.Is(err, errDegraded) {
		return
	}
	if errors.Is(err, errNotMade) && errors.Is(err, context.Canceled) {
		fmt.Fprintln(w, "interrupted: it was not done, nothing was changed")
		return
	}
	if errors.Is(err, context.Canceled) && !errors.Is(err, eventstore.ErrUnknownCommit) {
		fmt.Fprintln(w, "interrupted: nothing more was done")
		return
	}
	for n, line := range strings.Split(err.Error(), "\n") {
		if n == 0 {
			line = "error: " + line
		}
		if rest, ok := strings.CutPrefix(line, "\t"); ok { // as drivers set out what belongs to the line above
			line = "  " + rest
		}
		fmt.Fprintln(w, clean(line))
	}
	if f, ok := errors.AsType[*fault](err); ok && f.detail != "" {
		fmt.Fprint(w, f.detail)
	}
}
