package proxy_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/keyhold/keyhold/internal/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers each line, and tells what it got.
func echo(t *testing.T) (addr string, got <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 100)
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer c.Close()
				for s := bufio.NewScanner(c); s.Scan(); {
					lines <- s.Text()
					fmt.Fprintln(c, "re:", s.Text())
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); work.Wait() })
	return l.Addr().String(), lines
}

type client struct {
	net.Conn
	t       *testing.T
	answers *bufio.Reader
}

func dial(t *testing.T, p *proxy.Proxy) *client {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &client{c, t, bufio.NewReader(c)}
}

func (c *client) say(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatalf("say %q: %v", s, err)
	}
}

func (c *client) hears(want string) {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	line, err := c.answers.ReadString('\n')
	if strings.TrimSpace(line) != want {
		c.t.Errorf("heard %q, %v, want %q", line, err, want)
	}
}

func (c *client) hearsNothing() {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if line, err := c.answers.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("heard %q, %v, want nothing", line, err)
	}
}

func (c *client) isCut() {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if line, err := c.answers.ReadString('\n'); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("heard %q, %v, want the end of the connection", line, err)
	}
}

func TestPassesAndCuts(t *testing.T) {
	t.Parallel()
	addr, _ := echo(t)
	p := proxy.Run(t, addr)
	a, b := dial(t, p), dial(t, p)
	a.say("1\n")
	a.hears("re: 1")
	b.say("2\n")
	b.hears("re: 2")
	if n := p.Connections(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
	p.Cut()
	a.isCut()
	b.isCut()
	c := dial(t, p)
	c.say("3\n")
	c.hears("re: 3")
	p.Refuse()
	c.isCut()
	if c, err := net.Dial("tcp", p.Addr()); err == nil { // else it was cut before it was seen to be open
		(&client{c, t, bufio.NewReader(c)}).isCut()
		c.Close()
	} else if !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
	p.Pass()
	d := dial(t, p)
	d.say("4\n")
	d.hears("re: 4")
}

func TestDelays(t *testing.T) {
	t.Parallel()
	addr, _ := echo(t)
	p := proxy.Run(t, addr)
	c := dial(t, p)
	p.Delay(100 * time.Millisecond)
	began := time.Now()
	c.say("1\n")
	c.hears("re: 1")
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("took %v, want at least 200 ms", took)
	}
}

func TestHoldsBack(t *testing.T) {
	t.Parallel()
	for _, d := range []proxy.Direction{proxy.ToServer, proxy.ToClient, proxy.Both} {
		addr, got := echo(t)
		p := proxy.Run(t, addr)
		c := dial(t, p)
		p.Stall(d)
		c.say("late\n")
		if d == proxy.ToClient {
			<-got
		}
		c.hearsNothing()
		if d&proxy.ToServer != 0 && len(got) != 0 {
			t.Error("the server got what was held back")
		}
		p.Pass()
		c.hears("re: late")
	}
}

func TestSwallows(t *testing.T) {
	t.Parallel()
	for _, d := range []proxy.Direction{proxy.ToServer, proxy.ToClient} {
		addr, got := echo(t)
		p := proxy.Run(t, addr)
		c := dial(t, p)
		c.say("1\n")
		c.hears("re: 1")
		<-got
		p.Blackhole(d)
		c.say("2\n")
		if d == proxy.ToClient {
			<-got
		}
		c.hearsNothing()
		if len(got) != 0 {
			t.Error("the server got what was swallowed")
		}
		p.Pass()
		c.isCut() // it has lost bytes
	}
}

func TestSwallowsForAServerThatIsGone(t *testing.T) {
	t.Parallel()
	p := proxy.Run(t, "127.0.0.1:1")
	p.Blackhole(proxy.Both)
	c := dial(t, p)
	c.say("1\n")
	c.hearsNothing()
	p.Pass()
	c.isCut()
	c = dial(t, p)
	c.say("1\n")
	c.isCut()
}

func TestLosesOneReply(t *testing.T) {
	t.Parallel()
	for _, silent := range []bool{false, true} {
		addr, got := echo(t)
		p := proxy.Run(t, addr)
		other, c := dial(t, p), dial(t, p)
		other.say("x\n")
		other.hears("re: x")
		<-got
		happened := p.LoseReply("COMMIT", 1, silent)
		c.say("COMMIT\n")
		c.hears("re: COMMIT") // the one that is let through
		<-got
		other.say("y\n")
		other.hears("re: y")
		<-got
		c.say("COM")
		c.say("MIT\n") // across two pieces, or not
		<-happened
		if line := <-got; line != "COMMIT" {
			t.Errorf("the server got %q", line)
		}
		if silent {
			c.hearsNothing()
			p.Pass()
		}
		c.isCut()
		other.say("COMMIT\n")
		other.hears("re: COMMIT")
	}
}

func TestPointsElsewhere(t *testing.T) {
	t.Parallel()
	first, got1 := echo(t)
	second, got2 := echo(t)
	p := proxy.Run(t, first)
	a := dial(t, p)
	a.say("1\n")
	a.hears("re: 1")
	p.Point(second)
	b := dial(t, p)
	b.say("2\n")
	b.hears("re: 2")
	if one, two := <-got1, <-got2; one != "1" || two != "2" {
		t.Errorf("the servers got %q and %q", one, two)
	}
}
