package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/keyhold/keyhold/transport"
)

// mostChanges are told of one by one.
const mostChanges = 20

// changes says for people what is different between two lists of members; gone says why one of the first is not in the second.
func changes(was, now []transport.Member, gone func(id string) string) (all []string) {
	same := map[string]map[string]bool{} // ids of a name
	before := make(map[string]*transport.Member, len(was))
	for _, list := range [][]transport.Member{was, now} {
		for i := range list {
			if m := &list[i]; same[m.Node] == nil {
				same[m.Node] = map[string]bool{m.ID: true}
			} else {
				same[m.Node][m.ID] = true
			}
		}
	}
	say := func(m *transport.Member, format string, args ...any) {
		name := m.Node
		if len(same[name]) > 1 {
			name += fmt.Sprintf(" (process %d)", m.PID)
		}
		all = append(all, name+" "+fmt.Sprintf(format, args...))
	}
	for i := range was {
		before[was[i].ID] = &was[i]
	}
	after := make(map[string]bool, len(now))
	for i := range now {
		m := &now[i]
		after[m.ID] = true
		if b := before[m.ID]; b != nil {
			differences(b, m, func(format string, args ...any) { say(m, format, args...) })
		} else {
			say(m, "joined")
		}
	}
	for i := range was {
		if m := &was[i]; !after[m.ID] {
			say(m, "%s", gone(m.ID))
		}
	}
	slices.Sort(all)
	if more := len(all) - mostChanges; more > 0 {
		all = append(all[:mostChanges], fmt.Sprintf("and %d more", more))
	}
	return all
}

func differences(was, now *transport.Member, say func(format string, args ...any)) {
	switch {
	case now.Draining && !was.Draining:
		say("drains")
	case was.Draining && !now.Draining:
		say("drains no more")
	}
	switch {
	case now.Apart && !was.Apart:
		say("does not reach its store or broker")
	case was.Apart && !now.Apart:
		say("reaches its store and broker again")
	}
	if was.Node != now.Node {
		say("was %s before", was.Node)
	}
	switch {
	case was.Address == now.Address:
	case now.Address == "":
		say("is not asked any more")
	default:
		say("is asked at %s", now.Address)
	}
	if max(was.Weight, 1) != max(now.Weight, 1) {
		say("weighs %d, and %d before", max(now.Weight, 1), max(was.Weight, 1))
	}
	if more, less := without(now.Names, was.Names), without(was.Names, now.Names); len(more)+len(less) > 0 {
		var parts []string
		for _, p := range []struct {
			verb  string
			names []string
		}{{"takes up", more}, {"gives up", less}} {
			if len(p.names) > 0 {
				parts = append(parts, p.verb+" "+several(p.names))
			}
		}
		say("%s", strings.Join(parts, " and "))
	}
}

// without gives what is in all and not in those, both in order.
func without(all, those []string) (left []string) {
	for _, name := range all {
		if _, has := slices.BinarySearch(those, name); !has {
			left = append(left, name)
		}
	}
	return left
}

func several(names []string) string {
	const most = 3
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// gone says why somebody is no member any more.
func (l *listed) gone(id string, heard []transport.Heard) string {
	onList := slices.ContainsFunc(l.members, func(m transport.Member) bool { return m.ID == id })
	i := slices.IndexFunc(heard, func(h transport.Heard) bool { return h.Member.ID == id })
	switch {
	case i >= 0 && heard[i].State == transport.HeardLeft:
		return "left in good order"
	case onList:
		return "is not heard, and its lease on the list of members is not renewed"
	case i >= 0:
		return "is not heard, and its lease on the list of members has lapsed"
	}
	return "is not on the list of members any more: it left, or its lease has lapsed"
}
