package admin

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// age says how long something took or is ago, in one unit: "12 s", "4 m", "5 h", "3 d". It is never less than a second.
func age(d time.Duration) string {
	switch {
	case d < time.Second:
		return "1 s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d m", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d d", d/(24*time.Hour))
}

// since is the age of a time.
func (d *Desk) since(t time.Time) string { return age(d.opts.Now().Sub(t)) }

// ofMany is a number and what it counts.
func ofMany[N int | uint64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatUint(uint64(n), 10) + " " + many
}

// counted is ofMany for a count that may have been given up at the most that is counted.
func counted(n int, one, many string) string {
	if n >= eventstore.MaxCount {
		return fmt.Sprintf("%d %s or more", n, many)
	}
	return ofMany(n, one, many)
}

func are[N int | uint64](n N) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// upTo keeps an error that may be pages long to a line.
func upTo(most int, s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return s
}

// because appends what is known of a reason: "retries exhausted after 5 attempts: card declined".
func because(reason string, attempts int, err string) string {
	var parts []string
	if attempts > 0 {
		reason = strings.TrimSpace(reason + " after " + ofMany(attempts, "attempt", "attempts"))
	}
	if reason != "" {
		parts = append(parts, reason)
	}
	if err != "" {
		parts = append(parts, upTo(200, err))
	}
	return strings.Join(parts, ": ")
}

// typed is a place and the type of what is there.
func typed(p Place, typ string) string {
	if typ == "" {
		return p.String()
	}
	return fmt.Sprintf("%s (%s)", p, typ)
}

// by says who did something and why: "by ada: the address is wrong".
func by(actor, reason string) string {
	if reason == "" {
		return "by " + actor
	}
	return "by " + actor + ": " + reason
}
