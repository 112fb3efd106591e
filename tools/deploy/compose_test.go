package deploy

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

type composed struct {
	Services map[string]composedService
	Volumes  map[string]any
	Rest     map[string]any `yaml:",inline"` // x-node and x-environment, which others take in
}

type composedService struct {
	Build struct{ Context, Dockerfile string }
	Image string

	Restart     string
	Command     []string
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	Healthcheck struct {
		Test              []string
		Interval, Timeout string
		StartPeriod       string `yaml:"start_period"`
	}
	StopGracePeriod string `yaml:"stop_grace_period"`
	Ports           []string
	Environment     map[string]string
	Volumes         []string
}

// Each node of the compose file is one that the others find, and runs what the image has.
func TestTheComposeFileRunsNodes(t *testing.T) {
	t.Parallel()
	var c composed
	only(t, "compose.yaml", &c)
	for name := range c.Rest {
		if !strings.HasPrefix(name, "x-") {
			t.Errorf("%s is nothing that a compose file has", name)
		}
	}
	shop, entry := theShop(t), instruction(t, "ENTRYPOINT")[0]
	outside, number := map[string]bool{}, 0
	for name, s := range c.Services {
		for other, on := range s.DependsOn {
			if d, ok := c.Services[other]; !ok || on.Condition != "service_healthy" || len(d.Healthcheck.Test) == 0 {
				t.Errorf("%s waits for %s to be %s", name, other, on.Condition)
			}
		}
		if s.Build.Context == "" {
			if _, tag, _ := strings.Cut(s.Image, ":"); tag == "" || tag == "latest" || len(s.Healthcheck.Test) < 2 || s.Healthcheck.Test[0] != "CMD" {
				t.Errorf("%s is %s, watched by %q", name, s.Image, s.Healthcheck.Test)
			}
			continue
		}
		number++
		if s.Build.Context != ".." || s.Build.Dockerfile != "deploy/Dockerfile" || len(s.DependsOn) != 2 {
			t.Errorf("%s is built from %+v, and waits for %v", name, s.Build, s.DependsOn)
		}
		if want := fmt.Sprintf("[%q %q %q]", "CMD", entry, "probe"); fmt.Sprintf("%q", s.Healthcheck.Test) != want || !shop.commands["probe"] {
			t.Errorf("%s is watched by %q, want %s", name, s.Healthcheck.Test, want)
		}
		checkNode(t, name, s, shop)
		for _, p := range s.Ports {
			host, inside, _ := strings.Cut(strings.TrimPrefix(p, "127.0.0.1:"), ":")
			if outside[host] || !strings.HasSuffix(s.Environment["ORDERS_LISTEN"], ":"+inside) || !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s opens %s", name, p)
			}
			outside[host] = true
		}
	}
	if number != 3 || len(outside) != 3 || len(c.Services) != 5 {
		t.Errorf("%d nodes at %v, %d services", number, outside, len(c.Services))
	}
}

func checkNode(t *testing.T, name string, s composedService, shop shop) {
	t.Helper()
	for v := range s.Environment {
		if !shop.variables[v] && v != "PGPASSWORD" {
			t.Errorf("%s: the shop does not know %s", name, v)
		}
	}
	drain, err := time.ParseDuration(s.Environment["ORDERS_DRAIN"])
	grace, failed := time.ParseDuration(s.StopGracePeriod)
	if err != nil || failed != nil || grace < drain+5*time.Second {
		t.Errorf("%s: grace %s, drain %s", name, s.StopGracePeriod, s.Environment["ORDERS_DRAIN"])
	}
	if s.Environment["ORDERS_NODE"] != name {
		t.Errorf("%s calls itself %s", name, s.Environment["ORDERS_NODE"])
	}
	for _, what := range []string{"ORDERS_GOSSIP", "ORDERS_PEERS"} {
		_, port, err := net.SplitHostPort(s.Environment[what])
		if at := s.Environment[what+"_ADVERTISE"]; err != nil || at != net.JoinHostPort(name, port) {
			t.Errorf("%s listens on %s, and says that it is at %s", name, s.Environment[what], at)
		}
	}
}

// The image is of pinned versions, holds one static program and runs as nobody.
func TestTheImageIsPinned(t *testing.T) {
	t.Parallel()
	var images []string
	for _, from := range regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(read(t, "Dockerfile"), -1) {
		images = append(images, from[1])
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../go.mod"))
	if len(images) != 2 || !strings.HasPrefix(images[0], "golang:"+version[1]+"-") {
		t.Errorf("built on %q, go.mod says %s", images, version[1])
	}
	for _, image := range images {
		if _, tag, _ := strings.Cut(image, ":"); tag == "" || tag == "latest" {
			t.Errorf("%s may be anything tomorrow", image)
		}
	}
	if user := instruction(t, "USER"); user[0] == "root" || strings.HasPrefix(user[0], "0") {
		t.Errorf("runs as %s", user)
	}
	build := buildCommand(t)
	if !slices.Contains(build, "CGO_ENABLED=0") || build[len(build)-1] != "./examples/orders/cmd/orders" {
		t.Errorf("built by %q", build)
	}
}

// A document that has what nobody knows is refused, so that a slip of the pen is found.
func TestAFieldThatNobodyKnowsIsFound(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"services: {node1: {imagee: orders}}", "services: {node1: {stop_grace: 30s}}"} {
		d := yaml.NewDecoder(strings.NewReader(text))
		d.KnownFields(true)
		if err := d.Decode(&composed{}); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}
