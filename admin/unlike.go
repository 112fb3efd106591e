package admin

import (
	"maps"
	"slices"
	"strings"

	"github.com/keyhold/keyhold/eventstore"
)

// unlike gives, for each setting in which processes differ that must have it alike, a line that says who has what. Who does not name it is taken to have it as the others.
func unlike(present []eventstore.Owner) (lines []string) {
	having := map[string]map[string][]Owner{} // by setting and value
	for i := range present {
		a := AboutOf(present[i].About)
		if a == nil {
			continue
		}
		for setting, value := range a.Settings {
			if having[setting] == nil {
				having[setting] = map[string][]Owner{}
			}
			having[setting][value] = append(having[setting][value], Owner{PID: present[i].PID, Node: present[i].Node})
		}
	}
	for _, setting := range slices.Sorted(maps.Keys(having)) {
		values := having[setting]
		if len(values) < 2 {
			continue
		}
		var sides []string
		for _, value := range slices.Sorted(maps.Keys(values)) {
			who := values[value][0]
			who.Others = len(values[value]) - 1
			sides = append(sides, value+" at "+who.String())
		}
		lines = append(lines, "nodes differ in "+setting+", which must be the same on all: "+strings.Join(sides, ", ")+
			"; a rolling restart that changes it ends that, else set it alike and restart the nodes that have the wrong one")
	}
	return lines
}
