package netns_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/keyhold/keyhold/internal/child"
	"github.com/keyhold/keyhold/internal/netns"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open gives networks with an echo in the centre at port 7 of each.
func open(t *testing.T, names ...string) *netns.Networks {
	t.Helper()
	n := netns.Run(t, names...)
	for _, name := range names {
		echo(t, n.Within, fmt.Sprint(n.Addr(name), ":7"))
	}
	return n
}

func echo(t *testing.T, within func(func() error) error, addr string) {
	t.Helper()
	var l net.Listener
	err := within(func() (err error) { l, err = net.Listen("tcp", addr); return err })
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			work.Go(func() {
				for lines := bufio.NewScanner(c); lines.Scan(); {
					fmt.Fprintln(c, lines.Text())
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		work.Wait()
	})
}

func host(t *testing.T, n *netns.Networks) *netns.Host {
	t.Helper()
	h, err := n.Host()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// dial connects from a host within a time.
func dial(h *netns.Host, addr string, within time.Duration) (c net.Conn, err error) {
	inner := h.Within(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		c, err = (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		return nil
	})
	return c, errors.Join(err, inner)
}

// said sends a line and gives what comes back within a time.
func said(c net.Conn, line string, within time.Duration) (string, error) {
	c.SetDeadline(time.Now().Add(within))
	if line != "" {
		if _, err := fmt.Fprintln(c, line); err != nil {
			return "", err
		}
	}
	back, err := bufio.NewReaderSize(c, 16).ReadString('\n')
	return strings.TrimSpace(back), err
}

const (
	soon  = 20 * time.Second       // what happens
	never = 300 * time.Millisecond // in which what does not happen did not
)

func TestCutsOneNetworkOfOneHost(t *testing.T) {
	t.Parallel()
	n := open(t, "east", "west")
	a, b := host(t, n), host(t, n)
	links := map[string]net.Conn{}
	for name, h := range map[string]*netns.Host{"a": a, "b": b} {
		for _, network := range []string{"east", "west"} {
			c, err := dial(h, fmt.Sprint(n.Addr(network), ":7"), soon)
			if err != nil {
				t.Fatalf("%s does not reach the centre by %s: %v", name, network, err)
			}
			defer c.Close()
			links[name+network] = c
		}
	}
	talks := func(want bool, name string) {
		t.Helper()
		within := soon
		if !want {
			within = never
		}
		got, err := said(links[name], name, within)
		if (err == nil && got == name) != want {
			t.Errorf("%s: %q, %v, want it to talk: %v", name, got, err, want)
		}
		if ne := net.Error(nil); !want && (!errors.As(err, &ne) || !ne.Timeout()) {
			t.Errorf("%s: %v, want silence", name, err)
		}
	}
	if err := a.Cut("east"); err != nil {
		t.Fatal(err)
	}
	talks(false, "aeast")
	if _, err := dial(a, fmt.Sprint(n.Addr("east"), ":7"), never); err == nil {
		t.Error("a new connection through a network that is cut")
	}
	for _, name := range []string{"awest", "beast", "bwest"} {
		talks(true, name)
	}
	if err := a.Heal("east"); err != nil {
		t.Fatal(err)
	}
	// What was sent meanwhile arrives after all: the connection lives.
	if got, err := said(links["aeast"], "", soon); err != nil || got != "aeast" {
		t.Errorf("after the heal: %q, %v", got, err)
	}
	talks(true, "aeast")
}

func TestHostsReachOneAnother(t *testing.T) {
	t.Parallel()
	n := open(t, "east", "west")
	a, b, c := host(t, n), host(t, n), host(t, n)
	at := fmt.Sprint(b.Addr("west"), ":7")
	echo(t, b.Within, at)
	for _, h := range []*netns.Host{a, b, c} {
		l, err := dial(h, at, soon)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
	if err := b.Cut("west"); err != nil {
		t.Fatal(err)
	}
	for _, h := range []*netns.Host{a, c} {
		if _, err := dial(h, at, never); err == nil {
			t.Error("a host is reached that is cut off")
		}
	}
	l, err := dial(b, at, soon) // by itself
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestHostsThatComeDisturbNobody(t *testing.T) {
	t.Parallel()
	n := open(t, "east")
	mac := func() (text string) {
		if err := n.Within(func() error {
			i, err := net.InterfaceByName("east")
			if err == nil {
				text = i.HardwareAddr.String()
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return text
	}
	before := mac()
	for range 8 {
		host(t, n)
	}
	if now := mac(); now != before {
		t.Errorf("the centre was known as %s and is %s", before, now)
	}
}

func TestProcessesAreWhereTheyAreStarted(t *testing.T) {
	t.Parallel()
	n := open(t, "east")
	h := host(t, n)
	home := interfaces(t, func(f func() error) error { return f() })
	for name, c := range map[string]struct {
		within func(func() error) error
		want   string
	}{"centre": {n.Within, "east h1.0 lo"}, "host": {h.Within, "east lo"}} {
		if got := interfaces(t, c.within); got != c.want {
			t.Errorf("%s: interfaces are %q, want %q", name, got, c.want)
		}
	}
	if got := interfaces(t, func(f func() error) error { return f() }); got != home {
		t.Errorf("at home: interfaces are %q, want %q: not everybody came back", got, home)
	}
	failed := errors.New("failed")
	if err := h.Within(func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("got %v, want the error of what was run", err)
	}
}

// interfaces gives the names of the interfaces that a program sees.
func interfaces(t *testing.T, within func(func() error) error) string {
	t.Helper()
	var out []byte
	err := within(func() (err error) {
		out, err = exec.Command("sh", "-c", `for l in $(ip -o link show | cut -d: -f2); do echo "${l%%@*}"; done | sort`).Output()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(out)), " ")
}

func TestClosed(t *testing.T) {
	t.Parallel()
	n := netns.Run(t, "east")
	h := host(t, n)
	if err := errors.Join(n.Close(), n.Close()); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"a host": func() error { _, err := n.Host(); return err }(), "in the centre": n.Within(func() error { return nil }),
		"in a host": h.Within(func() error { return nil }), "a cut": h.Cut("east"),
	} {
		if err == nil || !strings.Contains(err.Error(), "closed") {
			t.Errorf("%s, after the end: %v", what, err)
		}
	}
}

func TestUnknownNetworks(t *testing.T) {
	t.Parallel()
	n := netns.Run(t, "east")
	h := host(t, n)
	for _, err := range []error{h.Cut("west"), h.Heal("east", "west")} {
		if err == nil || !strings.Contains(err.Error(), `no network "west"`) {
			t.Errorf("a network that is none: %v", err)
		}
	}
	if err := h.Cut(); err != nil {
		t.Errorf("none are cut: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a network that is none has an address")
		}
	}()
	h.Addr("west")
}

func TestNamesThatNoInterfaceCanHave(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{nil, {""}, {"lo"}, {"east", "east"}, {"a b"}, {"East"}, {"abcdefghijklmnop"}, make([]string, 201)} {
		if _, err := netns.Open(names...); err == nil || errors.Is(err, netns.ErrMissing) || errors.Is(err, netns.ErrRefused) {
			t.Errorf("%q: %v, want a refusal of the names", names, err)
		}
	}
}

func run(t *testing.T, names ...string) *child.Verdict {
	return child.Judge(t, func(tb child.TB) { netns.Run(tb, names...) })
}

func TestWhereThereIsNoProgram(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there are no network namespaces here")
	}
	t.Setenv("PATH", t.TempDir())
	t.Setenv("CI", "")
	if _, err := netns.Open("east"); !errors.Is(err, netns.ErrMissing) {
		t.Errorf("got %v, want ErrMissing", err)
	}
	if v := run(t, "east"); !v.Skipped {
		t.Error("the test was not skipped")
	}
	t.Setenv("CI", "true")
	if v := run(t, "east"); !v.Failed {
		t.Error("the test did not fail in CI, where the program could be installed")
	}
}

func TestWhereTheSystemRefuses(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there are no network namespaces here")
	}
	dir := t.TempDir()
	for _, program := range []string{"ip", "bridge"} {
		if err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\necho Operation not supported\nexit 2\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	t.Setenv("CI", "true")
	if _, err := netns.Open("east"); !errors.Is(err, netns.ErrRefused) {
		t.Errorf("got %v, want ErrRefused", err)
	}
	if v := run(t, "east"); !v.Skipped {
		t.Error("the test was not skipped, although nobody could install what is missing")
	}
}
