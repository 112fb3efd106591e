package keyhold_test

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/admin"
)

// journal is what an application logs.
type journal struct {
	mu struct {
		sync.Mutex
		bytes.Buffer
	}
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.Buffer.Write(p)
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// lines gives the lines with all of these texts.
func (j *journal) lines(texts ...string) (found []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.mu.String()) {
		all := true
		for _, text := range texts {
			all = all && strings.Contains(line, text)
		}
		if all {
			found = append(found, line)
		}
	}
	return found
}

// wants fails the test unless there is exactly one line with all of these texts.
func (j *journal) wants(t *testing.T, texts ...string) {
	t.Helper()
	if got := j.lines(texts...); len(got) != 1 {
		t.Errorf("%d lines with %q in:\n%s", len(got), texts, strings.Join(j.lines(), ""))
	}
}

func TestLiftedHaltIsToldOnceAndTheUnitResumes(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]func(t *testing.T) keyhold.Config{
		"inline": func(*testing.T) keyhold.Config { return inMemory() },
		"local":  func(t *testing.T) keyhold.Config { return onDisk(filepath.Join(t.TempDir(), "shop.db")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, log := newNotes(), new(journal)
			halted, resumed := make(chan keyhold.Halted, 10), make(chan keyhold.Unit, 10)
			cfg := cfg(t)
			cfg.Logger = log.logger()
			cfg.Observer = keyhold.Observer{
				Halted:  func(h keyhold.Halted) { halted <- h },
				Resumed: func(u keyhold.Unit) { resumed <- u },
			}
			app := run(t, cfg, cart, n.handler())
			n.refuse("bomb", true)
			add(t, app, "c1", "ada", "bomb")
			h := <-halted
			for range 2 { // the second time the unit is known to run
				n.refuse("bomb", false)
				if _, err := admin.Resume(t.Context(), app, h.Unit); err != nil {
					t.Fatal(err)
				}
				if u := <-resumed; u != h.Unit {
					t.Errorf("resumed %s, want %s", u, h.Unit)
				}
				<-n.news
				n.refuse("bomb", true)
				add(t, app, "c1", "ada", "bomb")
				h = <-halted
			}
			stop(t, app)
			if len(resumed) > 0 {
				t.Error("resumed more often than halts were lifted")
			}
			if got := log.lines("msg=resumed", "unit=register/ada"); len(got) != 2 {
				t.Errorf("resumed is logged %d times", len(got))
			}
			log.wants(t, "level=INFO", "acted: ", "act=retry", "unit=register/ada", "sequence=1", "by="+cfg.Name+"@")
			log.wants(t, "level=INFO", "acted: ", "act=retry", "unit=register/ada", "sequence=2")
			if got := log.lines("begins anew"); len(got) > 0 {
				t.Errorf("a lifted halt is told as a commit that failed: %s", got)
			}
			if got := log.lines("level=ERROR", "halted:", `try="keyhold why `); len(got) != 3 {
				t.Errorf("%d of 3 halts say how to go on", len(got))
			}
		})
	}
}

func TestStartTellsOfUnitsThatAreHalted(t *testing.T) {
	t.Parallel()
	n, log, cfg := newNotes(), new(journal), inMemory()
	app := run(t, cfg, cart, n.handler())
	n.refuse("bomb", true)
	for _, client := range []string{"ada", "bob", "cyd", "dan"} {
		add(t, app, "c1", client, "bomb")
	}
	stop(t, app)
	again := inMemory()
	again.Store, again.Logger = cfg.Store, log.logger()
	run(t, again, cart, n.handler())
	log.wants(t, "level=WARN", "halted=4", `first="register/ada, register/bob, register/cyd"`, `try="keyhold why cart ada"`)
}

func TestStartTellsWhatItFindsInTheStore(t *testing.T) {
	t.Parallel()
	log, cfg := new(journal), inMemory()
	cfg.Logger = log.logger()
	app := run(t, cfg, cart)
	log.wants(t, "level=INFO", "has no key", `\"cart\"`)
	add(t, app, "c1", "ada", "tea")
	stop(t, app)
	log, again := new(journal), inMemory()
	again.Store, again.Logger = cfg.Store, log.logger()
	run(t, again, price)
	log.wants(t, "level=WARN", "cart.item", "handles it nowhere")
}

func TestUnitOfNoHandlerIsToldFromOneThatIsNotHalted(t *testing.T) {
	t.Parallel()
	n := newNotes()
	app := run(t, inMemory(), cart, n.handler())
	_, err := admin.Resume(t.Context(), app, keyhold.Unit{Name: "registre", Key: "ada"})
	if err == nil || !strings.Contains(err.Error(), `"registre" (known: "cart", "register")`) {
		t.Errorf("resume of a misspelt handler: %v", err)
	}
	if h, err := app.Halt(t.Context(), keyhold.Unit{Name: "register", Key: "ada"}); h != nil || err != nil {
		t.Errorf("halt of a unit that has none: %v, %v", h, err)
	}
}

func TestRegisteringAfterStartIsAnErrorAtOnceAndAtTheNextStart(t *testing.T) {
	t.Parallel()
	log, cfg := new(journal), inMemory()
	cfg.Logger = log.logger()
	app := run(t, cfg, cart)
	app.Register(newNotes().handler())
	log.wants(t, "level=ERROR", "register everything before Start")
	stop(t, app)
	if err := app.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "register everything before Start") {
		t.Errorf("the next start: %v", err)
	}
}

func TestApplicationWithoutANameIsNotNamedInItsError(t *testing.T) {
	t.Parallel()
	if err := keyhold.New(keyhold.Config{}).Start(context.Background()); !strings.HasPrefix(err.Error(), "start: ") {
		t.Errorf("the error is %q", err)
	}
}

// awaiting is a log that tells when a line with a text comes.
type awaiting struct {
	text string
	came func()
}

func (a *awaiting) Write(p []byte) (int, error) {
	if strings.Contains(string(p), a.text) {
		a.came()
	}
	return len(p), nil
}

func (a *awaiting) logger() *slog.Logger { return slog.New(slog.NewTextHandler(a, nil)) }
