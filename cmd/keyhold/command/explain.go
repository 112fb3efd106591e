package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// explain gives an error of the desk or the store its exit code, and what to do about it.
func (r *run) explain(err error) error {
	var own *fault
	if err == nil || errors.As(err, &own) {
		return err
	}
	if moved, ok := errors.AsType[*admin.MovedError](err); ok {
		f := &fault{code: ExitMoved, err: err, detail: r.moved(moved), advice: moved.Hint}
		if f.detail != "" {
			f.advice = prefix(suffix(moved.Hint, "\n"), "This is how it stands now:")
		}
		return f
	}
	if unknown, ok := errors.AsType[*admin.NotFoundError](err); ok {
		return &fault{code: ExitNotFound, err: err, advice: r.nearest(unknown)}
	}
	if format, ok := errors.AsType[*eventstore.FormatError](err); ok && format.Found < format.Known {
		return &fault{code: ExitMoved, err: fmt.Errorf("store %s has format %d, this program needs %d", format.Path, format.Found, format.Known),
			advice: "Migrate it while nobody has it open: " + r.typed() + " migrate up"}
	}
	switch {
	case errors.Is(err, admin.ErrUsage), errors.Is(err, event.ErrBadID):
		advice := "See " + r.command.CommandPath() + " --help."
		if strings.Contains(err.Error(), "needs a reason") {
			advice = `Say it with --reason "...": it is kept with what was done. ` + advice
		}
		return &fault{code: ExitUsage, err: err, advice: advice}
	case errors.Is(err, eventstore.ErrInUse): // it says what to stop
		return &fault{code: ExitMoved, err: err}
	case errors.Is(err, eventstore.ErrOwned):
		return &fault{code: ExitMoved, err: err, advice: "Stop the program that uses it, then run this again."}
	case errors.Is(err, eventstore.ErrUnknownCommit):
		return &fault{code: ExitError, err: err, advice: "It may have been done. Look whether it was: " + r.typed() + " audit --limit 5"}
	}
	return err
}

// nearest says which of the names there are may have been meant.
func (s *setting) nearest(unknown *admin.NotFoundError) string {
	if unknown.Hint != "" {
		return unknown.Hint
	}
	if unknown.Empty {
		advice := "Nothing is registered in this store yet: an application registers what it has when it starts."
		if s.options.Open == nil {
			advice += " Look whether --db or KEYHOLD_DB names the right store."
		}
		return advice
	}
	best, least := "", 3
	for _, name := range unknown.Known {
		if d := distance(unknown.Name, name); d < least || best == "" && unknown.Name != "" && strings.HasPrefix(name, unknown.Name) {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	return "Did you mean " + best + "?"
}

// moved shows the state that refused an act: on the error stream, or as the document where one was asked for.
func (r *run) moved(err *admin.MovedError) string {
	if r.setting.output == asJSON {
		_ = r.show(movedView{Moved: err})
		return ""
	}
	var v view
	switch {
	case err.Now != nil && err.Now.Key != "":
		v = unitView{Unit: *err.Now, brief: true}
	case err.Job != nil:
		v = jobView{Job: *err.Job}
	case err.Handler != nil && err.Handler.Name != "":
		v = handlersView{[]admin.Handler{*err.Handler}}
	case err.Divergence != nil:
		v = lanesView{admin.Page[admin.Divergence]{Items: []admin.Divergence{*err.Divergence}}}
	case err.Projection != nil && err.Projection.Name != "":
		v = projectionView{*err.Projection}
	default:
		return ""
	}
	text, _ := r.render(v)
	return "\n" + string(text)
}

type movedView struct {
	Moved *admin.MovedError `json:"moved"`
}

func (movedView) draw(*page) {}
