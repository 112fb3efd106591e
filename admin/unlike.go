package admin

import (
	"cmp"
	"slices"
	"strings"

	"github.com/keyhold/keyhold/eventstore"
)

// Setting is one that all nodes of an application must have alike, as some processes say that they have it.
type Setting struct {
	Name, Value string
	Owners      []eventstore.Owner // who have it so; at least one
}

// SettingsOf gives what processes say of such settings, by name and value. Who does not name one says nothing of it.
func SettingsOf(present []eventstore.Owner) (all []Setting) {
	for i := range present {
		a := AboutOf(present[i].About)
		if a == nil {
			continue
		}
		for name, value := range a.Settings {
			at, found := slices.BinarySearchFunc(all, Setting{Name: name, Value: value}, func(s, of Setting) int {
				return cmp.Or(strings.Compare(s.Name, of.Name), strings.Compare(s.Value, of.Value))
			})
			if !found {
				all = slices.Insert(all, at, Setting{Name: name, Value: value})
			}
			all[at].Owners = append(all[at].Owners, present[i])
		}
	}
	return all
}

// unlike gives, for each setting in which processes differ that must have it alike, a line that says who has what. Who does not name it is taken to have it as the others.
func unlike(present []eventstore.Owner) (lines []string) {
	all := SettingsOf(present)
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Name == all[0].Name {
			n++
		}
		var sides []string
		for _, s := range all[:n] {
			who := Owner{PID: s.Owners[0].PID, Node: s.Owners[0].Node, Others: len(s.Owners) - 1}
			sides = append(sides, s.Value+" at "+who.String())
		}
		if n > 1 {
			lines = append(lines, "nodes differ in "+all[0].Name+", which must be the same on all: "+strings.Join(sides, ", ")+
				"; a rolling restart that changes it ends that, else set it alike and restart the nodes that have the wrong one")
		}
		all = all[n:]
	}
	return lines
}
