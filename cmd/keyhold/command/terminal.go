package command

import (
	"io"
	"os"

	"golang.org/x/term"
)

// terminal is what a stream turned out to be.
type terminal struct {
	is    bool
	width int // 0 = not known
}

// lookAt tells whether a stream of the command is a terminal.
func lookAt(stream any) terminal {
	file, ok := stream.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return terminal{}
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		width = 0
	}
	return terminal{is: true, width: width}
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

// screen redraws in place: each line is written over what was there, and what is left below is cleared, so that nothing flickers.
type screen struct{ out io.Writer }

const (
	home      = "\x1b[H"
	clearLine = "\x1b[K"
	clearRest = "\x1b[J"
	clearAll  = "\x1b[2J"
)
