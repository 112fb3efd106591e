package keyhold_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/admin"
)

// refund is a command that no entity is meant for.
type refund struct {
	Client string `json:"client"`
	Item   string `json:"item"`
}

var _ = keyhold.Type[refund]("refund", 1)

// refunds handles them, one client at a time.
func (n *notes) refunds() keyhold.CommandHandler[*notes] {
	return keyhold.CommandHandler[*notes]{
		Name: "refunds", SequentialBy: "client",
		New: func(string) *notes { return n },
		On: keyhold.Behavior[*notes]{keyhold.On(func(n *notes, ctx keyhold.Context, c refund) error {
			return n.take(ctx.Key(), c.Item)
		})},
	}
}

func TestCommandsAreHandledInTheOrderOfDispatchPerKey(t *testing.T) {
	t.Parallel()
	n := newNotes()
	app := run(t, inMemory(), n.refunds())
	if err := keyhold.Dispatch(t.Context(), app, refund{"ada", "tea"}, &refund{"bob", "rye"}, refund{"ada", "jam"}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"tea", "jam"}, n.of("ada")); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"rye"}, n.of("bob")); d != "" {
		t.Error(d)
	}
}

func TestDispatchIsPartOfTheUnitOfWork(t *testing.T) {
	t.Parallel()
	n := newNotes()
	app := run(t, inMemory(), cart, losses, n.refunds())
	no := errors.New("no")
	err := keyhold.Do(t.Context(), app, func(u keyhold.UnitOfWork) error {
		u.Dispatch(refund{"ada", "tea"})
		return no
	})
	if !errors.Is(err, no) {
		t.Error(err)
	}
	err = keyhold.Do(t.Context(), app, func(u keyhold.UnitOfWork) error {
		u.Dispatch(refund{"ada", "jam"})
		return keyhold.Dispatch(u, app, refund{"ada", "rye"})
	})
	if err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]string{"jam", "rye"}, n.of("ada")); d != "" {
		t.Error(d)
	}
}

func TestWhatIsNoCommandAndWhatHasABadKeyIsRefusedByDispatch(t *testing.T) {
	t.Parallel()
	n := newNotes()
	app := run(t, inMemory(), cart, losses, n.losses(), n.refunds())
	if err := keyhold.Dispatch(t.Context(), app, refund{"ada", "tea"}, refund{"", "jam"}); !errors.Is(err, keyhold.ErrBadKey) {
		t.Errorf("a bad key: %v", err)
	}
	if err := keyhold.Dispatch(t.Context(), app, itemLost{"ada", "tea"}); err == nil || !strings.Contains(err.Error(), "emit it") {
		t.Errorf("an event: %v", err)
	}
	if err := keyhold.Publish(t.Context(), app, refund{"ada", "tea"}); err == nil || !strings.Contains(err.Error(), "dispatch it") {
		t.Errorf("publish of a command: %v", err)
	}
	err := keyhold.Do(t.Context(), app, func(u keyhold.UnitOfWork) error {
		u.Emit(refund{"ada", "tea"})
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "dispatch it") {
		t.Errorf("emit of a command: %v", err)
	}
	if got := n.of("ada"); len(got) > 0 {
		t.Errorf("and yet %v was handled", got)
	}
}

func TestCommandHandlersSurviveARestartWithWhatTheyHaveNotHandled(t *testing.T) {
	t.Parallel()
	n, path := newNotes(), filepath.Join(t.TempDir(), "shop.db")
	cfg, halted := onDisk(path), make(chan struct{}, 1)
	cfg.Observer = keyhold.Observer{Halted: func(keyhold.Halted) { halted <- struct{}{} }}
	app := run(t, cfg, n.refunds())
	n.refuse("tea", true)
	if err := keyhold.Dispatch(t.Context(), app, refund{"ada", "tea"}, refund{"ada", "jam"}, refund{"bob", "rye"}); err != nil {
		t.Fatal(err)
	}
	<-n.news // bob's
	<-halted
	stop(t, app)
	n.refuse("tea", false)
	app = run(t, onDisk(path), n.refunds())
	halts, err := app.Halts(t.Context(), "refunds", keyhold.Unit{}, 10)
	if err != nil || len(halts) != 1 || halts[0].Unit.Key != "ada" {
		t.Fatalf("halts: %v, %v", halts, err)
	}
	if _, err := admin.Resume(t.Context(), app, halts[0].Unit); err != nil {
		t.Fatal(err)
	}
	if got := []string{<-n.news, <-n.news}; cmp.Diff([]string{"tea", "jam"}, got) != "" {
		t.Errorf("handled %v", got)
	}
}

func TestDeclarationsOfCommandHandlersAreChecked(t *testing.T) {
	t.Parallel()
	n := newNotes()
	keyless, misnamed, eavesdropper := n.refunds(), n.refunds(), n.handler()
	keyless.SequentialBy, misnamed.SequentialBy = "", "customer"
	eavesdropper.Categories = []string{"cart", "refunds.commands"}
	for want, declared := range map[string][]keyhold.Declaration{
		`SequentialBy is empty`: {keyless},
		`customer`:              {misnamed},
		`the category of the commands of handler "refunds"`: {cart, n.refunds(), eavesdropper},
	} {
		app := keyhold.New(inMemory())
		app.Register(declared...)
		if err := app.Start(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}
