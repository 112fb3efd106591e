package keyhold

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/eventstore"
)

// absent warns of each handler and entity kind that the store knows and this program does not have, where that holds something up: nothing else
// would tell, and of a handler that was given another name it is the one sign that everything is applied again.
func (r *registrar) absent(stored []eventstore.Handler) {
	known := map[string]bool{}
	for _, h := range stored {
		known[h.Name] = true
	}
	for _, h := range stored {
		if h.StoreID != "" || slices.Contains(r.plan.names(), h.Name) {
			continue // another application has it, or this one
		}
		if len(h.Begins) > 0 {
			r.warnf("%s %q is in the store and not in this program: the application that produces category %s keeps what it has not read; if it is not to come back, stop the program and run %q",
				h.Kind, h.Name, listNames(slices.Sorted(maps.Keys(h.Begins))), command("rm", h.Name))
		}
		categories := r.withEvents(h.Categories)
		if len(categories) == 0 {
			continue
		}
		rm := command("rm", h.Name)
		if h.Kind == eventstore.EntityKind {
			r.warnf("entity %q is in the store and not in this program: commands that were sent to it wait in category %s, and are kept whatever Config.Retention says; "+
				"register it again or, if it is not to come back, stop the program and run %q", h.Name, categories, rm)
			continue
		}
		r.warnf("%s %q is in the store and not in this program: what it has not passed of category %s is kept for it, whatever Config.Retention says; "+
			"if it has another name now, run %q before the first start under that name; if it is not to come back, stop the program and run %q",
			h.Kind, h.Name, categories, command("rename", h.Name, "NEW"), rm)
		for _, d := range r.plan.descriptions {
			if !known[d.Name] && follows(d, h) {
				r.warnf("%s is new to the store, and begins like %s %q with the oldest event of category %s: everything is applied again under the new name; "+
					"if the two are one, stop the program, run %q and %q, and start it again; what was applied again by then stays",
					of(d), h.Kind, h.Name, categories, command("rm", d.Name), command("rename", h.Name, d.Name))
			}
		}
	}
}

// follows reports whether a behavior may be one of the store under another name.
func follows(d actors.Description, h eventstore.Handler) bool {
	return d.Kind == h.Kind && d.StartFrom == actors.Oldest && slices.Equal(union(nil, d.Categories), union(nil, h.Categories))
}

// withEvents names the categories that hold something, "" for none.
func (r *registrar) withEvents(categories []string) string {
	var all []string
	for _, c := range categories {
		if r.hasEvents[c] {
			all = append(all, c)
		}
	}
	return listNames(all)
}

func listNames(names []string) string {
	var all []string
	for _, name := range names {
		all = append(all, strconv.Quote(name))
	}
	return strings.Join(all, ", ")
}

func command(what string, names ...string) string {
	return admin.CommandLine("keyhold", "handlers "+what, nil, names...)
}
