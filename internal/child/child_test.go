package child_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/keyhold/keyhold/internal/child"
)

const roleVariable = "KEYHOLD_CHILD_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "parent" {
		if err := parent(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		select {} // until it is killed
	}
	goleak.VerifyTestMain(m)
}

// parent starts a program that does not heed what it is asked to, and tells where.
func parent() error {
	h, err := child.NewHome("keyhold-child", "TERM", nil)
	if err != nil {
		return err
	}
	p, err := h.Start(filepath.Join(h.Dir, "log"), nil, "sh", "-c", "trap '' TERM; while :; do sleep 1; done")
	if err != nil {
		return err
	}
	fmt.Println(h.Dir, p.PID())
	return nil
}

// TestEndsWithItsParent kills the parent, which has no chance to clean up.
func TestEndsWithItsParent(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"=parent")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	dir, number, _ := strings.Cut(strings.TrimSpace(line), " ")
	pid, err := strconv.Atoi(number)
	if err != nil {
		t.Fatalf("parent says %q", line)
	}
	if state(pid) == "" {
		t.Fatalf("process %d does not run", pid)
	}
	cmd.Process.Kill()
	cmd.Wait()
	eventually(t, "the program is gone", func() bool { s := state(pid); return s == "" || s == "Z" })
	eventually(t, "its folder is gone", func() bool { _, err := os.Stat(dir); return os.IsNotExist(err) })
}

// family is a program with a child, both of which run until they are ended.
func family(t *testing.T) (_ *child.Home, _ *child.Process, offspring int) {
	t.Helper()
	h, err := child.NewHome("keyhold-child", "KILL", nil)
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(h.Dir, "log")
	p, err := h.Start(log, nil, "sh", "-c", "sleep 1000 & echo $!; wait")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the program has started another", func() bool {
		text, _ := os.ReadFile(log)
		offspring, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	return h, p, offspring
}

func TestFreezesAndKillsWhatItStarted(t *testing.T) {
	t.Parallel()
	h, p, offspring := family(t)
	if err := p.Freeze(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both are stopped", func() bool { return state(p.PID()) == "T" && state(offspring) == "T" })
	if err := p.Thaw(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both go on", func() bool { return state(p.PID()) == "S" && state(offspring) == "S" })
	if !p.Alive() {
		t.Error("it runs, and is said to have ended")
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if p.Alive() {
		t.Error("killed, and said to run")
	}
	eventually(t, "its child is gone", func() bool { s := state(offspring); return s == "" || s == "Z" })
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(h.Dir); !os.IsNotExist(err) {
		t.Errorf("the folder is left behind: %v", err)
	}
}

func TestQuitsByASignalOfItsOwn(t *testing.T) {
	t.Parallel()
	h, p, offspring := family(t)
	defer h.Close()
	if _, err := h.Start(filepath.Join(h.Dir, "log"), nil, "true"); err == nil {
		t.Error("a second program was started beside the first")
	}
	if err := p.Quit(syscall.SIGTERM, 100*time.Millisecond); err != nil { // of which the shell's child hears nothing
		t.Fatal(err)
	}
	eventually(t, "its child is gone", func() bool { s := state(offspring); return s == "" || s == "Z" })
}

func TestUnknownProgram(t *testing.T) {
	t.Parallel()
	h, err := child.NewHome("keyhold-child", "KILL", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, err := h.Start(filepath.Join(h.Dir, "log"), nil, "keyhold-no-such-program"); err == nil {
		t.Error("a program that does not exist was started")
	}
	p, err := h.Start(filepath.Join(h.Dir, "log"), nil, "true")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has ended", func() bool { return !p.Alive() })
	if ok, err := p.Wait(t.Context()); !ok || err != nil {
		t.Errorf("true ended with %v, %v", ok, err)
	}
	for program, arg := range map[string]string{"false": "", "sleep": "1000"} {
		p, err := h.Start(filepath.Join(h.Dir, "log"), nil, program, arg)
		if err != nil {
			t.Fatal(err)
		}
		patience := time.Minute // for what ends by itself, on a busy machine later
		if program == "sleep" {
			patience = 200 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if ok, err := p.Wait(ctx); ok || (err != nil) != (program == "sleep") {
			t.Errorf("%s ended with %v, %v", program, ok, err)
		}
		cancel()
	}
}

// state is the letter that the system gives for what a process does: S sleeps, T is stopped, Z is dead and not yet waited for.
func state(pid int) string {
	out, _ := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return strings.TrimSpace(string(out))
}

// eventually looks until it is so. Processes send no signals to a test.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for began := time.Now(); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func TestWhatATestIsTold(t *testing.T) {
	missing, other := errors.New("not installed"), errors.New("it is broken")
	for _, c := range []struct {
		ci              string
		err             error
		skipped, failed bool
	}{{"", nil, false, false}, {"true", nil, false, false}, {"", missing, true, false}, {"true", missing, false, true}, {"", other, false, true}, {"true", other, false, true}} {
		t.Setenv("CI", c.ci)
		went := false
		v := child.Judge(t, func(tb child.TB) {
			child.Check(tb, c.err, missing)
			went = true
		})
		if v.Skipped != c.skipped || v.Failed != c.failed || went == (c.skipped || c.failed) {
			t.Errorf("%+v: skipped %v, failed %v, went on %v", c, v.Skipped, v.Failed, went)
		}
	}
	defer func() {
		if got := recover(); got != any("of its own") {
			t.Errorf("a panic of its own became %v", got)
		}
	}()
	child.Judge(t, func(child.TB) { panic("of its own") })
}
