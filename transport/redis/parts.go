package redis

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/keyhold/keyhold/event"
)

// What stands for a part is leased out of one hash with all parts of its store, in which the lease is a time and not an expiry of Redis: a node holds up to all of them, always, and renews
// them in one go, whatever their number. The time is that of the server, as with an expiry.

// partField gives the store of what stands for a part, and the part's field in the hash of all parts of that store.
func partField(u event.Unit) (store, field string, is bool) {
	at := strings.LastIndexByte(u.Key, '-')
	if u.Name != event.PartName || at < 0 {
		return "", "", false
	}
	return u.Key[:at], u.Key[at+1:], true
}

// partLeases asks who has parts of one store, and for how long yet.
type partLeases struct {
	clock, kept *call // both go to the server of the hash
	of          []int // for each field that is asked for, whose it is
}

func newPartLeases(hash string) *partLeases {
	return &partLeases{
		clock: &call{keys: []string{hash}, args: []any{"time"}},
		kept:  &call{keys: []string{hash}, args: []any{"hmget", hash}},
	}
}

func (l *partLeases) add(i int, field string) {
	l.of = append(l.of, i)
	l.kept.args = append(l.kept.args, field)
}

// read puts what is left of each lease where it belongs.
func (l *partLeases) read(left []time.Duration) error {
	if err := cmp.Or(l.clock.err, l.kept.err); err != nil {
		return err
	}
	now, ok := serverTime(l.clock.reply)
	kept, all := list(l.kept.reply, len(l.of))
	if !ok || !all {
		return fmt.Errorf("odd replies %v, %v", l.clock.reply, l.kept.reply)
	}
	for at, i := range l.of {
		text, _ := kept[at].(string)
		if fields := strings.Fields(text); len(fields) == 3 {
			until, _ := strconv.ParseInt(fields[2], 10, 64)
			left[i] = max(0, time.Duration(until)*time.Millisecond-now)
		}
	}
	return nil
}

// serverTime reads the reply of TIME, rounded down to milliseconds as scripts do.
func serverTime(reply any) (time.Duration, bool) {
	both, ok := list(reply, 2)
	if !ok {
		return 0, false
	}
	seconds, _ := both[0].(string)
	micros, _ := both[1].(string)
	s, one := strconv.ParseInt(seconds, 10, 64)
	us, two := strconv.ParseInt(micros, 10, 64)
	return time.Duration(s)*time.Second + (time.Duration(us) * time.Microsecond).Truncate(time.Millisecond), one == nil && two == nil
}
