package eventstore

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// DecideHandler says whether an act of the kinds rename, remove and reset can be done to a handler in the state now, and what its record
// tells. Entity kinds and process managers keep their name, and their place in the lanes of their commands, whatever is done. inUse: a process has the store started, and the handler was saved in that start. taken: the store keeps something under the
// new name. The error, which does not name the act, is [ErrNotFound], [ErrInUse], a [*StateMovedError], or that of a kind of handler to which it cannot be done.
func (a *Act) DecideHandler(now UnitState, inUse, taken bool) (detail string, err error) {
	if err := a.known(&now); err != nil {
		return "", err
	}
	keeps := now.Kind.KeepsPlaces()
	switch {
	case a.Kind == ActRename && keeps:
		return "", fmt.Errorf("the streams of its %s carry its name", now.Kind)
	case a.Kind == ActReset && keeps:
		return "", fmt.Errorf("its %s would decide all commands again that are kept, and emit again what it emitted", now.Kind)
	case inUse:
		return "", fmt.Errorf("%w: stop the program, or start one that does not have this handler", ErrInUse)
	case a.Kind == ActRename && taken:
		return "", a.Moved(now, fmt.Sprintf("the name %q is taken", a.To))
	}
	switch a.Kind {
	case ActRename:
		return fmt.Sprintf("renamed to %q, with its place in all lanes", a.To), nil
	case ActRemove:
		if keeps {
			return "forgotten, with what it set aside; its place in the lanes of its commands is kept, so that none is decided twice", nil
		}
		return "forgotten, with its place in all lanes and what it set aside", nil
	}
	return "begins again " + a.Start.words(), nil
}

// Rebegins gives from when on a handler begins, when it is reset, in categories that another application produces. What the lanes there have now is not
// known in this store, so it can begin with the first that its producer keeps, and in no other way.
func (h *Handler) Rebegins(start Start) (map[string]time.Time, error) {
	if len(h.Begins) == 0 {
		return nil, nil
	}
	categories := slices.Sorted(maps.Keys(h.Begins))
	if start.Now || !start.From.IsZero() {
		return nil, fmt.Errorf("another application produces %s, and this store does not know where its events are now: reset it to the oldest, or give the handler a new name and StartFrom",
			strings.Join(categories, ", "))
	}
	again := make(map[string]time.Time, len(categories))
	for _, category := range categories {
		again[category] = time.Time{}
	}
	return again, nil
}

// KeepsPlaces reports whether a handler of this kind keeps its place in its lanes when it is removed: what it decided is in the store, and must not
// be decided again should it come back.
func (k HandlerKind) KeepsPlaces() bool { return k == EntityKind || k == ProcessManager }

// words say where a start begins.
func (s *Start) words() string {
	switch {
	case s.Now:
		return "with what comes from now on"
	case s.From.IsZero():
		return "with the first events kept"
	}
	return "with the first events from " + stamp(s.From) + " on"
}
