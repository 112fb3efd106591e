package deploy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"
)

// shop is what the program says of itself.
type shop struct {
	variables map[string]bool // that its help names
	commands  map[string]bool
	probes    map[string]int // status by path, of a shop that runs
}

var built struct {
	once sync.Once
	shop shop
	err  error
}

// theShop builds the program of the image, once, and asks it.
func theShop(t *testing.T) shop {
	t.Helper()
	built.once.Do(func() { built.shop, built.err = ask(buildCommand(t)) })
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.shop
}

func ask(build []string) (s shop, err error) {
	dir, err := os.MkdirTemp("", "keyhold-deploy-")
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program := filepath.Join(dir, "orders")
	c := exec.Command("go", "build", "-o", program, build[len(build)-1]) // without the flags of the image, so that what others have compiled is used
	c.Dir = filepath.Join("..", "..")
	if out, err := c.CombinedOutput(); err != nil {
		return s, errors.New(string(out))
	}
	help, err := exec.Command(program, "--help").Output()
	if err != nil {
		return s, err
	}
	s.variables, s.commands = map[string]bool{}, map[string]bool{}
	for _, name := range regexp.MustCompile(`\(\$([A-Z_]+)\)`).FindAllSubmatch(help, -1) {
		s.variables[string(name[1])] = true
	}
	for _, name := range regexp.MustCompile(`(?m)^  ([a-z]+) `).FindAllSubmatch(help, -1) {
		s.commands[string(name[1])] = true
	}
	s.probes, err = probesOf(program, dir)
	return s, err
}

// probesOf runs a shop with its environment alone, looks at its probes, and stops it as an orchestrator does.
func probesOf(program, dir string) (answers map[string]int, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	health := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	c := exec.Command(program)
	c.Env = append(os.Environ(), "ORDERS_DB="+filepath.Join(dir, "orders.db"), "ORDERS_LISTEN=127.0.0.1:0", "ORDERS_HEALTH="+health)
	var log bytes.Buffer
	c.Stderr = &log
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	said := bufio.NewReader(out)
	if _, err := said.ReadString('\n'); err != nil {
		return nil, errors.Join(err, c.Wait(), errors.New(log.String()))
	}
	answers = map[string]int{}
	for _, path := range []string{"/healthz", "/readyz"} {
		r, failed := http.Get("http://" + health + path)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		answers[path] = r.StatusCode
		err = errors.Join(err, r.Body.Close())
	}
	err = errors.Join(err, c.Process.Signal(syscall.SIGTERM))
	_, failed := io.Copy(io.Discard, said)
	if ended := c.Wait(); ended != nil {
		err = errors.Join(err, ended, errors.New(log.String()))
	}
	return answers, errors.Join(err, failed)
}

// buildCommand is the one of the image.
func buildCommand(t *testing.T) []string {
	t.Helper()
	line := regexp.MustCompile(`(?m)^RUN (.*go build.*)$`).FindStringSubmatch(read(t, "Dockerfile"))
	if line == nil {
		t.Fatal("the Dockerfile builds nothing")
	}
	return strings.Fields(line[1])
}

// instruction gives the arguments of one that the Dockerfile has once.
func instruction(t *testing.T, name string) (args []string) {
	t.Helper()
	all := regexp.MustCompile(`(?m)^`+name+` (.*)$`).FindAllStringSubmatch(read(t, "Dockerfile"), -1)
	if len(all) != 1 {
		t.Fatalf("%d times %s", len(all), name)
	}
	if json.Unmarshal([]byte(all[0][1]), &args) != nil {
		args = strings.Fields(all[0][1])
	}
	return args
}

// read reads a file of deploy/.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func filesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := os.ReadDir(filepath.Join("..", "..", "deploy", dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}

// documents are the parts of a file.
func documents(t *testing.T, name string) []string {
	t.Helper()
	return strings.Split(read(t, name), "\n---\n")
}

// only reads the one document of a file.
func only(t *testing.T, name string, into any) {
	t.Helper()
	all := documents(t, name)
	if len(all) != 1 {
		t.Fatalf("%s has %d documents", name, len(all))
	}
	strictly(t, name, all[0], into)
}

// strictly refuses a field that is not read.
func strictly(t *testing.T, name, text string, into any) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func or(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}
