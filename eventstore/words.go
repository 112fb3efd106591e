package eventstore

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// stamp is how times stand in messages.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000Z") }

// stopped says at what a unit is stopped, for one who believed something else.
func stopped(s *UnitState) string {
	var parts []string
	if h := s.Halt; h != nil {
		parts = append(parts, fmt.Sprintf("it is halted at %s #%d since %s", h.Lane, h.Sequence, stamp(h.Since)))
	}
	if p := s.Parking; p != nil && p.First.Due {
		parts = append(parts, fmt.Sprintf("it applies what it parked, %s #%d is next", p.First.Lane, p.First.Sequence))
	} else if p != nil {
		parts = append(parts, fmt.Sprintf("it has %s parked, %s #%d is the first", events(p.Count), p.First.Lane, p.First.Sequence))
	}
	if len(parts) == 0 {
		return "it is not halted and has nothing parked"
	}
	return strings.Join(parts, ", and ")
}

func haltedAt(h *Halt) string {
	return fmt.Sprintf("halted at %s #%d%s", h.Lane, h.Sequence, inBrackets(h.Reason))
}

func parkedFrom(p *Parking) string {
	return fmt.Sprintf("%s parked from %s #%d on%s", events(p.Count), p.First.Lane, p.First.Sequence, inBrackets(p.First.Reason))
}

func pausedBy(p *Pause) string {
	s := "by " + p.Actor + " since " + stamp(p.Since)
	if p.Reason != "" {
		s += ": " + p.Reason
	}
	return s
}

func inBrackets(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

func events(n int) string { return counted(n, "event") }

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// oneLine is the first line of a text, cut to what fits a table.
func oneLine(s string) string {
	const most = 160
	s = strings.TrimSpace(s)
	if at := strings.IndexAny(s, "\r\n"); at >= 0 {
		s = s[:at]
	}
	if len(s) > most {
		cut := most
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "..."
	}
	return s
}

func withError(s, err string) string {
	if err = oneLine(err); err != "" {
		s += ": " + err
	}
	return s
}
