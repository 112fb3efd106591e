package command

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// confirmation is what a person is asked before something that is hard to undo.
type confirmation struct {
	view view   // what is about to be done
	yes  bool   // --yes
	word string // to be typed
	few  bool   // it concerns one thing only, and asks nothing unless its word is a name
}

// confirm asks on a terminal, on the error stream so that a document on the other stays one. Where there is none, --yes is required.
func (r *run) confirm(c confirmation) error {
	if c.yes || c.few && c.word == "yes" {
		return nil
	}
	if !r.env.terminal(r.in).is {
		advice := "Give --yes if you mean it."
		if r.command.Flags().Lookup("dry-run") != nil {
			advice = "Look at what it would do with --dry-run; then give --yes."
		}
		return misused(advice, "%s: this asks before it acts, and there is no terminal to answer at", r.command.CommandPath())
	}
	text, err := r.drawn(c.view)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.err, "%s\nType %s to go on: ", text, clean(c.word))
	answer, err := bufio.NewReader(r.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if strings.TrimSpace(answer) != c.word {
		return &fault{code: ExitError, err: errors.New("not confirmed: nothing was done")}
	}
	return nil
}
