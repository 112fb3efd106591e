package codec

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"

	"github.com/keyhold/keyhold/event"
)

// edge is an upcaster between versions that are known.
type edge struct {
	step
	from, to Version
}

// linker makes chains of upcasters, and collects everything that is wrong with them.
type linker struct {
	r      *Registry
	broken map[reflect.Type]bool // types whose declaration is wrong, which has been said
	edges  map[Version]*edge     // by where they start
	faults []error
}

func (l *linker) addf(format string, args ...any) {
	l.faults = append(l.faults, fmt.Errorf(format, args...))
}

// link gives the registry its chains.
func (l *linker) link(all []*upcaster) error {
	l.edges = map[Version]*edge{}
	edited := map[string][]int{}
	for _, u := range all {
		if u.from == nil {
			edited[u.version.Name] = append(edited[u.version.Name], u.version.Version)
		}
	}
	for i, u := range all {
		if !slices.Contains(all[:i], u) {
			l.add(u, edited)
		}
	}
	if len(l.faults) == 0 {
		l.ends()
	}
	if len(l.faults) == 0 {
		l.chains()
	}
	return errors.Join(l.faults...)
}

func (l *linker) add(u *upcaster, edited map[string][]int) {
	var e *edge
	if u.from == nil {
		e = l.edit(u, edited)
	} else {
		e = l.between(u)
	}
	if e == nil {
		return
	}
	if other := l.edges[e.from]; other != nil {
		l.addf("upcaster of %s: there is another from %s, to %s: keep one", e.about, e.from, other.to)
		return
	}
	l.edges[e.from] = e
}

// between gives the edge of an upcaster between Go types, nil where it cannot be one.
func (l *linker) between(u *upcaster) *edge {
	about := fmt.Sprintf("%s to %s", u.from, u.to)
	if l.broken[u.from] || l.broken[u.to] {
		return nil
	}
	from, known := l.version(about, u.from)
	to, alsoKnown := l.version(about, u.to)
	if !known || !alsoKnown {
		return nil
	}
	about = fmt.Sprintf("%s (%s) to %s (%s)", from, l.r.structOf(from), to, l.r.structOf(to))
	switch {
	case u.up == nil:
		l.addf("upcaster of %s: it has no func", about)
	case from == to:
		l.addf("upcaster of %s: it leads to where it starts: give it the type of the next version", about)
	case from.Name == to.Name && to.Version < from.Version:
		l.addf("upcaster of %s: it goes down: older versions become newer ones; an older program that is put back waits for a newer one instead", about)
	default:
		return &edge{step{u, about}, from, to}
	}
	return nil
}

func (l *linker) version(about string, t reflect.Type) (v Version, ok bool) {
	if s, message := messageOf(t); message && s == t {
		l.addf("upcaster of %s: %s is a protobuf message: use the pointer, *%[2]s", about, t)
		return v, false
	}
	name, version, err := l.r.NameOf(t)
	if err != nil {
		l.addf("upcaster of %s: %w", about, err)
	}
	return Version{name, version}, err == nil
}

// edit gives the edge of an upcaster on JSON, nil where it cannot be one.
func (l *linker) edit(u *upcaster, edited map[string][]int) *edge {
	from := u.version
	_, message := findMessage(from.Name)
	invalid := event.CheckName(from.Name)
	switch d := l.r.byName[from.Name][from.Version]; {
	case u.edit == nil:
		l.addf("upcaster of %s: it has no func", from)
	case invalid != nil:
		l.addf("upcaster of %s: %w", from, invalid)
	case message:
		l.addf("upcaster of %s: that is a protobuf message, which is no JSON: use an upcaster between Go types", from)
	case from.Version < 1 || from.Version > math.MaxInt32:
		l.addf("upcaster of %s: versions go from 1 to 2147483647: begin with 1", from)
	case d != nil:
		l.addf("upcaster of %s: that version is declared as %s: use an upcaster from that type, or drop its declaration", from, d.typ)
	default:
		to := Version{Name: from.Name}
		for _, v := range slices.Concat(slices.Collect(maps.Keys(l.r.byName[from.Name])), edited[from.Name]) {
			if v > from.Version && (to.Version == 0 || v < to.Version) {
				to.Version = v
			}
		}
		if to.Version == 0 {
			if !l.misses(from.Name) {
				l.addf("upcaster of %s: it leads nowhere: declare a later version of the type, or drop the upcaster", from)
			}
			return nil
		}
		return &edge{step{u, fmt.Sprintf("%s to version %d", from, to.Version)}, from, to}
	}
	return nil
}

// misses reports whether a type of that name is declared wrongly, so that what leads to it only seems to lead nowhere.
func (l *linker) misses(name string) bool {
	return l.r.byName[name] == nil && len(l.broken) > 0
}

// ends checks where each chain ends: at the newest version of a name.
func (l *linker) ends() {
	told := map[Version]bool{}
	for _, from := range l.starts() {
		end, seen := from, map[Version]bool{}
		for e := l.edges[end]; e != nil && !seen[end]; e = l.edges[end] {
			seen[end] = true
			end = e.to
		}
		if told[end] {
			continue
		}
		told[end] = true
		if seen[end] {
			for v := range seen {
				told[v] = true
			}
			l.addf("upcasters of %s: they go round in a circle, back to %[1]s: drop one of them", end)
			continue
		}
		newest := slices.Max(append(slices.Collect(maps.Keys(l.r.byName[end.Name])), end.Version))
		if newest > end.Version {
			l.addf("upcaster of %s: it leads to version %d, and version %d is declared: add an upcaster from version %[2]d to a later one, "+
				"so that there is one version to handle", l.into(end), end.Version, newest)
		}
	}
}

// into gives what the first upcaster to a version makes of what.
func (l *linker) into(v Version) string {
	for _, from := range l.starts() {
		if l.edges[from].to == v {
			return l.edges[from].about
		}
	}
	return v.String()
}

// starts gives the versions that upcasters start from, in order.
func (l *linker) starts() []Version {
	return slices.SortedFunc(maps.Keys(l.edges), compareVersions)
}

// chains gives each old version its way to the newest.
func (l *linker) chains() {
	for _, from := range l.starts() {
		c := &chain{read: l.r.byName[from.Name][from.Version]}
		end := from
		for e := l.edges[end]; e != nil; e = l.edges[end] {
			end = e.to
			if e.edit != nil {
				c.edits = append(c.edits, e.step)
				c.read = l.r.byName[end.Name][end.Version]
				continue
			}
			c.steps = append(c.steps, e.step)
		}
		c.to = l.r.structOf(end)
		l.r.older[c.to] = append(l.r.older[c.to], from)
		l.r.chains[from] = c
	}
	for from, c := range l.r.chains { // not before: until here, byName has what is declared, and nothing else
		switch d := l.r.byName[from.Name][from.Version]; {
		case len(c.edits) > 0:
			l.r.byName[from.Name][from.Version] = &Declaration{name: from.Name, version: from.Version, chain: c}
		case d != nil:
			d.chain = c
		}
	}
}
