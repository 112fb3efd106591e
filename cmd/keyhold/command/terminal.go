package command

import (
	"os"

	"golang.org/x/term"
)

// terminal is what a stream turned out to be.
type terminal struct {
	is     bool
	width  int // 0 = not known
	height int
}

// lookAt tells whether a stream of the command is a terminal.
func lookAt(stream any) terminal {
	file, ok := stream.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return terminal{}
	}
	width, height, err := term.GetSize(int(file.Fd()))
	if err != nil {
		width, height = 0, 0
	}
	return terminal{is: true, width: width, height: height}
}

// paint is what a value means; the palette says how that looks.
type paint int

const (
	asIs  paint = iota
	bad         // stopped, and somebody must do something
	wary        // in trouble, or held on purpose
	good        // all is well
	faint       // titles and asides
)

// palette dyes text, or leaves it alone.
type palette bool

var dyes = map[paint]string{bad: "\x1b[31m", wary: "\x1b[33m", good: "\x1b[32m", faint: "\x1b[2m"}

func (p palette) dye(as paint, text string) string {
	if !bool(p) || dyes[as] == "" || text == "" {
		return text
	}
	return dyes[as] + text + "\x1b[0m"
}
