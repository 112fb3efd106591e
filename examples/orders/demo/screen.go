package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// screen is where the story is told. On a terminal, progress is one line that changes; elsewhere it is a line now and then, and
// there are no control characters.
type screen struct {
	out   io.Writer
	live  bool // out is a terminal
	last  time.Time
	dirty bool // the cursor is behind a line of progress
}

// The least time between two lines of progress: on a terminal, and elsewhere.
const everyLive, every = 100 * time.Millisecond, 2 * time.Second

func newScreen(file *os.File) *screen {
	info, err := file.Stat()
	live := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	return &screen{out: file, live: live}
}

// say writes a line, in place of the progress.
func (s *screen) say(format string, args ...any) {
	s.clear()
	fmt.Fprintf(s.out, format+"\n", args...)
}

// tell writes a text in lines that anybody can read.
func (s *screen) tell(format string, args ...any) {
	const width = 110
	line := ""
	for _, word := range strings.Fields(fmt.Sprintf(format, args...)) {
		if line != "" && len(line)+1+len(word) > width {
			s.say("%s", line)
			line = ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	s.say("%s", line)
}

// step begins a chapter.
func (s *screen) step(n, of int, format string, args ...any) {
	s.say("\n[%d/%d] %s", n, of, fmt.Sprintf(format, args...))
	s.last = time.Now() // progress begins later
}

// note writes a line that belongs to a chapter.
func (s *screen) note(format string, args ...any) { s.say("      "+format, args...) }

// due reports whether it is time to show how far things are.
func (s *screen) due() bool {
	if s.live {
		return time.Since(s.last) >= everyLive
	}
	return time.Since(s.last) >= every
}

// progress shows how far things are, unless it was shown just now.
func (s *screen) progress(format string, args ...any) {
	if !s.due() {
		return
	}
	s.last = time.Now()
	if !s.live {
		s.note(format, args...)
		return
	}
	s.clear()
	fmt.Fprintf(s.out, "      "+format, args...)
	s.dirty = true
}

func (s *screen) clear() {
	if s.dirty {
		fmt.Fprint(s.out, "\r\x1b[K")
		s.dirty = false
	}
}

// table writes lines of a name, a number and a remark.
func (s *screen) table(rows [][3]string) {
	var name, number int
	for _, r := range rows {
		name, number = max(name, len(r[0])), max(number, len(r[1]))
	}
	for _, r := range rows {
		s.say("%s", strings.TrimRight(fmt.Sprintf("      %-*s  %*s   %s", name, r[0], number, r[1], r[2]), " "))
	}
}

// list writes lines of a name, a value and a remark.
func (s *screen) list(rows [][3]string) {
	var name, value int
	for _, r := range rows {
		name, value = max(name, utf8.RuneCountInString(r[0])), max(value, utf8.RuneCountInString(r[1]))
	}
	for _, r := range rows {
		s.note("  %-*s  %-*s  %s", name, r[0], value, r[1], r[2])
	}
}

// thousands writes 2000 as 2,000.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}
