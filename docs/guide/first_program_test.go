package guide_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestFirstProgramIsBuiltAsThePageSays does what first-program.md tells a newcomer to do, in a module of its own: a block named after a file is
// that file, a diff changes one, and what stands after $ is done, and must print what stands below it. The program that has no arguments is left
// running until ^C.
//
// The module has the requirements of this one, so that no version is looked up. Ports are free ones.
func TestFirstProgramIsBuiltAsThePageSays(t *testing.T) {
	t.Parallel()
	const name = "first-program.md"
	page := read(t, name)
	s := newcomer(t)
	var done strings.Builder
	rest := page
	for {
		at := fenced.FindStringSubmatchIndex(rest)
		if at == nil {
			break
		}
		head, body := rest[at[2]:at[3]], rest[at[4]:at[5]]
		done.WriteString(rest[:at[4]])
		language, file, named := strings.Cut(head, " ")
		switch {
		case language == "go" && named:
			s.write(file, body)
		case language == "diff" && named:
			s.edit(file, body)
		case language == "console":
			body = s.session(body)
		case language == "":
		default:
			t.Errorf("%s: nobody tests a block of %q:\n%s", name, head, body)
		}
		done.WriteString(body + rest[at[5]:at[1]])
		rest = rest[at[1]:]
	}
	done.WriteString(rest)
	if s.running != nil {
		t.Errorf("%s leaves the shop running", name)
	}
	if *record {
		if err := os.WriteFile(name, []byte(done.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(strings.Split(page, "\n"), strings.Split(done.String(), "\n")); d != "" {
		t.Errorf("what the program prints is not what the page says (-page +program); look whether it still reads well, then go test ./docs/guide -run FirstProgram -record:\n%s", d)
	}
}

// shop is the directory of somebody who follows the page.
type shop struct {
	t       *testing.T
	dir     string
	ports   [2]string // instead of 8080 and 9464
	running *exec.Cmd
	log     bytes.Buffer // of what runs
}

func newcomer(t *testing.T) *shop {
	t.Helper()
	s := &shop{t: t, dir: t.TempDir(), ports: freePorts(t)}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	mod := strings.Replace(read(t, filepath.Join(root, "go.mod")), "module github.com/keyhold/keyhold", "module shop", 1)
	s.write("go.mod", mod+"\nrequire github.com/keyhold/keyhold v0.0.0\nreplace github.com/keyhold/keyhold => "+root+"\n")
	s.write("go.sum", read(t, filepath.Join(root, "go.sum")))
	t.Cleanup(func() {
		if s.running != nil {
			s.end(syscall.SIGKILL)
		}
		if t.Failed() {
			t.Logf("log of the shop:\n%s", s.log.String())
		}
	})
	return s
}

// freePorts gives two ports below those that the system gives out, and that other tests draw, so that nobody has them while the shop is down.
func freePorts(t *testing.T) (two [2]string) {
	t.Helper()
	for have := 0; have < len(two); {
		port := strconv.Itoa(5_000 + rand.IntN(5_000))
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			continue
		}
		defer l.Close() // it is not drawn twice
		two[have] = port
		have++
	}
	return two
}

func (s *shop) onFreePorts(text string) string {
	return strings.NewReplacer(":8080", ":"+s.ports[0], ":9464", ":"+s.ports[1]).Replace(text)
}

func (s *shop) write(file, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, file), []byte(s.onFreePorts(text)), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// edit does to a file what a diff shows. What it takes away or leaves must stand in the file, once.
func (s *shop) edit(file, diff string) {
	s.t.Helper()
	var before, after strings.Builder
	for line := range strings.Lines(s.onFreePorts(diff)) {
		switch {
		case strings.HasPrefix(line, "-"):
			before.WriteString(line[1:])
		case strings.HasPrefix(line, "+"):
			after.WriteString(line[1:])
		default:
			line = strings.TrimPrefix(line, " ")
			before.WriteString(line)
			after.WriteString(line)
		}
	}
	text := read(s.t, filepath.Join(s.dir, file))
	if n := strings.Count(text, before.String()); n != 1 {
		s.t.Fatalf("%s has this %d times, want once:\n%s", file, n, before.String())
	}
	s.write(file, strings.Replace(text, before.String(), after.String(), 1))
}

// session does what a block tells to type, and gives the block with what was printed.
func (s *shop) session(block string) string {
	s.t.Helper()
	var out strings.Builder
	lines := strings.Split(strings.TrimSuffix(block, "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		var said []string
		for i+1 < len(lines) && !strings.HasPrefix(lines[i+1], "$ ") && lines[i+1] != "^C" {
			i++
			said = append(said, lines[i])
		}
		out.WriteString(line + "\n")
		if line == "^C" {
			s.end(syscall.SIGINT)
			continue
		}
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			s.t.Fatalf("what is %q?", line)
		}
		out.WriteString(s.do(command, strings.Join(said, "\n")))
	}
	return out.String()
}

func (s *shop) do(command, says string) string {
	s.t.Helper()
	if build, ok := strings.CutPrefix(command, "go build && "); ok {
		if out, code := s.execute("go", "build"); code != 0 {
			s.t.Fatalf("go build: %s", out)
		}
		command = build
	}
	switch {
	case command == "./shop" && s.running == nil:
		s.start()
		return ""
	case command == "go mod tidy": // the module has all requirements already
		return ""
	case strings.HasPrefix(command, "kill -9 "):
		s.end(syscall.SIGKILL)
		return ""
	}
	if strings.Contains(command, " -d ") || strings.Contains(command, " partitions skip ") {
		if got := s.once(command); squeezed(got) != squeezed(says) {
			return got
		}
		return lined(says)
	}
	// What is only looked at may come true a moment later, as the page says.
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		got := s.once(command)
		if squeezed(got) == squeezed(says) {
			return lined(says)
		}
		if time.Since(began) > s.patience() {
			return got
		}
	}
}

// squeezed is a text without what columns are padded with: they are as wide as what differs each time.
func squeezed(text string) string {
	return strings.TrimSuffix(regexp.MustCompile(` +`).ReplaceAllString(text, " "), "\n")
}

func lined(text string) string {
	if text == "" {
		return ""
	}
	return text + "\n"
}

// patience is how long what is printed may differ from the page. When the page is recorded, all that is going on is given that time.
func (s *shop) patience() time.Duration {
	if *record {
		return 5 * time.Second
	}
	return 30 * time.Second
}

func (s *shop) once(command string) string {
	s.t.Helper()
	args := words(command)
	if args[0] == "curl" {
		return s.curl(command)
	}
	out, code := s.execute(args[0], args[1:]...)
	if code != 0 {
		out += fmt.Sprintf("(exit code %d)\n", code)
	}
	return sameEachTime(strings.ReplaceAll(out, s.dir, "/srv/shop"))
}

var word = regexp.MustCompile(`'([^']*)'|"([^"]*)"|\S+`)

func words(line string) (all []string) {
	for _, m := range word.FindAllStringSubmatch(line, -1) {
		switch {
		case m[1] != "":
			all = append(all, m[1])
		case m[2] != "":
			all = append(all, m[2])
		default:
			all = append(all, m[0])
		}
	}
	return all
}

func (s *shop) execute(program string, args ...string) (string, int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, program, args...)
	c.Dir, c.WaitDelay = s.dir, time.Second
	out, err := c.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("%s: %v", program, err)
	}
	return string(out), c.ProcessState.ExitCode()
}

// curl does what curl would, and grep after it.
func (s *shop) curl(command string) string {
	s.t.Helper()
	ask, filter, _ := strings.Cut(command, " | ")
	method, body, url := http.MethodGet, "", ""
	args := words(ask)
	for i := 1; i < len(args); i++ {
		switch args[i] {
		case "-s":
		case "-d":
			method, body = http.MethodPost, args[i+1]
			i++
		default:
			url = "http://" + s.onFreePorts(args[i])
		}
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		s.t.Fatalf("%s: %v", command, err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if filter == "" {
		return string(got)
	}
	only := regexp.MustCompile(words(filter)[1])
	var out strings.Builder
	for line := range strings.Lines(string(got)) {
		if only.MatchString(line) {
			out.WriteString(line)
		}
	}
	return out.String()
}

func (s *shop) start() {
	s.t.Helper()
	c := exec.Command(filepath.Join(s.dir, "shop"))
	c.Dir, c.Stdout, c.Stderr, c.WaitDelay = s.dir, &s.log, &s.log, time.Second
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.running = c
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get("http://127.0.0.1:" + s.ports[0] + "/orders/nobody")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusConflict { // there is no such order
				return
			}
		}
		if time.Since(began) > time.Minute {
			s.t.Fatalf("the shop does not answer: %v", err)
		}
	}
}

func (s *shop) end(by syscall.Signal) {
	s.t.Helper()
	c := s.running
	if c == nil {
		s.t.Fatal("nothing runs that could be ended")
	}
	s.running = nil
	if err := c.Process.Signal(by); err != nil {
		s.t.Error(err)
	}
	err := c.Wait()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if by == syscall.SIGINT && err != nil {
		s.t.Errorf("the shop does not end well: %v", err)
	}
}

// sameEachTime makes the same of what differs each time.
func sameEachTime(text string) string {
	for _, same := range [][2]string{
		{`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, "019f3b52-8a10-7cc4-9f27-5d0e6c1ab93e"},
		{`\b[0-9a-f]{32}\b`, "6f0c1f6ad7e64c0fb1a5f1a0c2f7d3b1"},
		{`process \d+ \(shop@[^)]*\)`, "process 4711 (shop@app-1)"},
		{`\d{4}/\d\d/\d\d \d\d:\d\d:\d\d`, "2026/03/14 09:26:53"},
		{`\b\d+ [smh]\b`, "2 s"}, {`\b(\d+h)?(\d+m)?\d+[sm]\b`, "2s"},
	} {
		text = regexp.MustCompile(same[0]).ReplaceAllString(text, same[1])
	}
	return text
}
