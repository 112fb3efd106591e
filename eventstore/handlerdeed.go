package eventstore

import (
	"fmt"
)

// DecideHandler says whether an act of the kinds rename, remove and reset can be done to a handler in the state now, and what its record
// tells. inUse: a process has the store started, and the handler was saved in that start. taken: the store keeps something under the
// new name. The error is [ErrNotFound], [ErrInUse], a [*StateMovedError], or that of a kind of handler to which it cannot be done.
func (a *Act) DecideHandler(now UnitState, inUse, taken bool) (detail string, err error) {
	if err := a.known(&now); err != nil {
		return "", err
	}
	keeps := now.Kind == EntityKind || now.Kind == ProcessManager
	switch {
	case a.Kind == ActRename && keeps:
		return "", fmt.Errorf("rename %q: the streams of its %s carry its name", a.Unit.Name, now.Kind)
	case inUse:
		return "", fmt.Errorf("%s %q: %w: stop the program, or start one that does not have this handler", a.Kind, a.Unit.Name, ErrInUse)
	case a.Kind == ActRename && taken:
		return "", a.Moved(now, fmt.Sprintf("the name %q is taken", a.To))
	}
	switch a.Kind {
	case ActRename:
		return fmt.Sprintf("renamed to %q, with its place in all lanes", a.To), nil
	case ActRemove:
		return "forgotten, with its place in all lanes and what it set aside", nil
	}
	return "begins again " + a.Start.words(), nil
}

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
