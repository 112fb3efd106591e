package deploy

import (
	"fmt"
	"maps"
	"net"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// What is read of the objects. A field that is not here fails the test: it may be one that nobody knows.

type meta struct {
	Name   string
	Labels map[string]string
}

type selector struct {
	MatchLabels map[string]string `yaml:"matchLabels"`
}

type object struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   meta
}

type service struct {
	object `yaml:",inline"`
	Spec   struct {
		ClusterIP                string `yaml:"clusterIP"`
		PublishNotReadyAddresses bool   `yaml:"publishNotReadyAddresses"`
		Selector                 map[string]string
		Ports                    []struct {
			Name, Protocol string
			TargetPort     string `yaml:"targetPort"`
			Port           int
		} `yaml:"ports"`
	}
}

type budget struct {
	object `yaml:",inline"`
	Spec   struct {
		MaxUnavailable             int    `yaml:"maxUnavailable"`
		UnhealthyPodEvictionPolicy string `yaml:"unhealthyPodEvictionPolicy"`
		Selector                   selector
	}
}

type policy struct {
	object `yaml:",inline"`
	Spec   struct {
		PodSelector selector `yaml:"podSelector"`
		PolicyTypes []string `yaml:"policyTypes"`
		Ingress     []struct {
			From []struct {
				PodSelector selector `yaml:"podSelector"`
			}
			Ports []struct{ Port, Protocol string }
		}
	}
}

type probe struct {
	HTTPGet struct {
		Path, Port string
	} `yaml:"httpGet"`
	PeriodSeconds    int `yaml:"periodSeconds"`
	TimeoutSeconds   int `yaml:"timeoutSeconds"`
	FailureThreshold int `yaml:"failureThreshold"`
}

type variable struct {
	Name, Value string
	ValueFrom   struct {
		FieldRef struct {
			FieldPath string `yaml:"fieldPath"`
		} `yaml:"fieldRef"`
		SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
	} `yaml:"valueFrom"`
}

type container struct {
	Name, Image string
	Ports       []struct {
		Name, Protocol string
		ContainerPort  int `yaml:"containerPort"`
	}
	Env          []variable
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
	StartupProbe   probe `yaml:"startupProbe"`
	LivenessProbe  probe `yaml:"livenessProbe"`
	ReadinessProbe probe `yaml:"readinessProbe"`
	Lifecycle      struct {
		PreStop struct {
			Sleep struct{ Seconds int }
		} `yaml:"preStop"`
	}
	Resources struct {
		Requests, Limits map[string]string
	}
	SecurityContext struct {
		AllowPrivilegeEscalation bool `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool `yaml:"readOnlyRootFilesystem"`
		Capabilities             struct{ Drop []string }
	} `yaml:"securityContext"`
}

type nodes struct {
	object `yaml:",inline"`
	Spec   struct {
		ServiceName         string `yaml:"serviceName"`
		Replicas            int
		PodManagementPolicy string `yaml:"podManagementPolicy"`
		MinReadySeconds     int    `yaml:"minReadySeconds"`
		Selector            selector
		Template            struct {
			Metadata meta
			Spec     struct {
				TerminationGracePeriodSeconds int  `yaml:"terminationGracePeriodSeconds"`
				EnableServiceLinks            bool `yaml:"enableServiceLinks"`
				AutomountServiceAccountToken  bool `yaml:"automountServiceAccountToken"`
				SecurityContext               struct {
					RunAsNonRoot   bool                  `yaml:"runAsNonRoot"`
					RunAsUser      int                   `yaml:"runAsUser"`
					RunAsGroup     int                   `yaml:"runAsGroup"`
					FSGroup        int                   `yaml:"fsGroup"`
					SeccompProfile struct{ Type string } `yaml:"seccompProfile"`
				} `yaml:"securityContext"`
				TopologySpreadConstraints []struct {
					MaxSkew           int      `yaml:"maxSkew"`
					TopologyKey       string   `yaml:"topologyKey"`
					WhenUnsatisfiable string   `yaml:"whenUnsatisfiable"`
					LabelSelector     selector `yaml:"labelSelector"`
				} `yaml:"topologySpreadConstraints"`
				Containers []container
				Volumes    []struct {
					Name   string
					Secret struct {
						SecretName  string `yaml:"secretName"`
						DefaultMode int    `yaml:"defaultMode"`
					}
				}
			}
		}
	}
}

// manifests are the objects of deploy/kubernetes.
type manifests struct {
	services map[string]service
	nodes    nodes
	shop     container
	env      map[string]variable // of shop
	budget   budget
	policy   policy
}

func readManifests(t *testing.T) (m manifests) {
	t.Helper()
	m.services = map[string]service{}
	for _, text := range documents(t, "kubernetes/services.yaml") {
		var s service
		strictly(t, "services.yaml", text, &s)
		m.services[s.Metadata.Name] = s
	}
	only(t, "kubernetes/nodes.yaml", &m.nodes)
	only(t, "kubernetes/disruption.yaml", &m.budget)
	only(t, "kubernetes/network.yaml", &m.policy)
	if all := m.nodes.Spec.Template.Spec.Containers; len(all) == 1 {
		m.shop = all[0]
	} else {
		t.Fatalf("%d containers", len(all))
	}
	m.env = map[string]variable{}
	for _, v := range m.shop.Env {
		m.env[v.Name] = v
	}
	return m
}

func TestAllManifestsAreApplied(t *testing.T) {
	t.Parallel()
	var k struct {
		object    `yaml:",inline"`
		Resources []string
		Images    []struct {
			Name   string
			NewTag string `yaml:"newTag"`
		}
	}
	only(t, "kubernetes/kustomization.yaml", &k)
	files := filesIn(t, "kubernetes")
	want := slices.DeleteFunc(files, func(f string) bool { return f == "kustomization.yaml" })
	slices.Sort(k.Resources)
	if !slices.Equal(k.Resources, want) {
		t.Errorf("the kustomization has %q, the folder %q", k.Resources, want)
	}
	if image := readManifests(t).shop.Image; len(k.Images) != 1 || k.Images[0].Name != image || k.Images[0].NewTag == "" || k.Images[0].NewTag == "latest" {
		t.Errorf("the image %q has no tag of its own: %+v", image, k.Images)
	}
}

func TestSelectorsFindThePods(t *testing.T) {
	t.Parallel()
	m := readManifests(t)
	labels := m.nodes.Spec.Template.Metadata.Labels
	selectors := map[string]map[string]string{
		"StatefulSet": m.nodes.Spec.Selector.MatchLabels, "PodDisruptionBudget": m.budget.Spec.Selector.MatchLabels, "NetworkPolicy": m.policy.Spec.PodSelector.MatchLabels,
	}
	for name, s := range m.services {
		selectors["Service "+name] = s.Spec.Selector
	}
	for i, c := range m.nodes.Spec.Template.Spec.TopologySpreadConstraints {
		selectors[fmt.Sprint("topology spread ", i)] = c.LabelSelector.MatchLabels
	}
	clients := 0
	for _, rule := range m.policy.Spec.Ingress {
		for i, from := range rule.From {
			if from.PodSelector.MatchLabels["orders-client"] == "true" { // of other programs, which ask these pods
				clients++
				if len(rule.From) != 1 || len(rule.Ports) != 1 || fmt.Sprint(rule.Ports[0].Port) != "peers" {
					t.Errorf("clients reach %+v", rule.Ports)
				}
				continue
			}
			selectors[fmt.Sprint("NetworkPolicy, from ", i)] = from.PodSelector.MatchLabels
		}
	}
	if clients != 1 {
		t.Errorf("%d rules are for clients", clients)
	}
	if len(selectors) < 8 {
		t.Errorf("only %d selectors were found", len(selectors))
	}
	for what, s := range selectors {
		for label, value := range s {
			if labels[label] != value {
				t.Errorf("%s looks for %s=%s, pods have %q", what, label, value, labels[label])
			}
		}
		if len(s) == 0 {
			t.Errorf("%s looks for everything", what)
		}
	}
	if s, ok := m.services[m.nodes.Spec.ServiceName]; !ok || s.Spec.ClusterIP != "None" || !s.Spec.PublishNotReadyAddresses {
		t.Errorf("the nodes' service %q is %+v: it must give the addresses of all nodes", m.nodes.Spec.ServiceName, s)
	}
}

// Each port has one number, wherever it is written.
func TestPortsAgree(t *testing.T) {
	t.Parallel()
	m := readManifests(t)
	ports, protocols := map[string]int{}, map[string]string{}
	for _, p := range m.shop.Ports {
		ports[p.Name], protocols[p.Name] = p.ContainerPort, or(p.Protocol, "TCP")
	}
	for env, port := range map[string]string{"ORDERS_LISTEN": "http", "ORDERS_HEALTH": "health", "ORDERS_GOSSIP": "gossip", "ORDERS_PEERS": "peers"} {
		if _, n, err := net.SplitHostPort(m.env[env].Value); err != nil || n != fmt.Sprint(ports[port]) {
			t.Errorf("%s is %q, the port %s %d", env, m.env[env].Value, port, ports[port])
		}
	}
	if ports["gossip"] != ports["gossip-udp"] || protocols["gossip"] != "TCP" || protocols["gossip-udp"] != "UDP" {
		t.Errorf("gossip takes one port of TCP and UDP: %v %v", ports, protocols)
	}
	if seeds, want := m.env["ORDERS_GOSSIP_SEEDS"].Value, fmt.Sprintf("%s:%d", m.nodes.Spec.ServiceName, ports["gossip"]); seeds != want {
		t.Errorf("the seeds are %q, the nodes at %q", seeds, want)
	}
	for name, s := range m.services {
		for _, p := range s.Spec.Ports {
			if ports[p.TargetPort] == 0 || protocols[p.TargetPort] != or(p.Protocol, "TCP") || s.Spec.ClusterIP == "None" && p.Port != ports[p.TargetPort] {
				t.Errorf("service %s: %+v is no port of the pods", name, p)
			}
		}
	}
	open := map[string]bool{}
	for _, rule := range m.policy.Spec.Ingress {
		for _, p := range rule.Ports {
			open[p.Port] = true
			if protocols[p.Port] != p.Protocol {
				t.Errorf("network policy: %+v is no port of the pods", p)
			}
			if among := len(rule.From) > 0; among != slices.Contains([]string{"gossip", "gossip-udp", "peers"}, p.Port) {
				t.Errorf("network policy: %s is for nodes alone: %v", p.Port, among)
			}
		}
	}
	if len(open) != len(ports) {
		t.Errorf("the network policy lets in %v of %v", open, ports)
	}
}

// A node is not killed before its time is up: the pod's grace holds the wait for callers, and the drain.
func TestTheGraceIsLongerThanTheDrain(t *testing.T) {
	t.Parallel()
	m := readManifests(t)
	drain, err := time.ParseDuration(m.env["ORDERS_DRAIN"].Value)
	if err != nil {
		t.Fatal(err)
	}
	grace := time.Duration(m.nodes.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
	wait := time.Duration(m.shop.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	if wait < time.Second || grace < wait+drain+5*time.Second {
		t.Errorf("grace %s, preStop %s, drain %s", grace, wait, drain)
	}
}

func TestProbesAskWhatThereIs(t *testing.T) {
	t.Parallel()
	m := readManifests(t)
	serves := theShop(t).probes
	for name, c := range map[string]struct {
		probe
		path string
	}{
		"startup": {m.shop.StartupProbe, "/healthz"}, "liveness": {m.shop.LivenessProbe, "/healthz"}, "readiness": {m.shop.ReadinessProbe, "/readyz"},
	} {
		if c.HTTPGet.Path != c.path || c.HTTPGet.Port != "health" || c.PeriodSeconds == 0 {
			t.Errorf("%s: %+v", name, c.probe)
		}
		if serves[c.HTTPGet.Path] != 200 {
			t.Errorf("%s: the shop answers %s with %d", name, c.HTTPGet.Path, serves[c.HTTPGet.Path])
		}
	}
}

var reference = regexp.MustCompile(`\$\(([A-Z_]+)\)`)

func TestVariablesAreThoseOfTheShop(t *testing.T) {
	t.Parallel()
	m := readManifests(t)
	known, before := theShop(t).variables, map[string]bool{}
	for _, v := range m.shop.Env {
		if before[v.Name] {
			t.Errorf("%s is set twice", v.Name)
		}
		for _, name := range reference.FindAllStringSubmatch(v.Value, -1) {
			if !before[name[1]] {
				t.Errorf("%s names $(%s), which is not set before it", v.Name, name[1])
			}
		}
		before[v.Name] = true
		if !known[v.Name] && v.Name != "POD_IP" && v.Name != "PGPASSWORD" {
			t.Errorf("the shop does not know %s", v.Name)
		}
		if from := v.ValueFrom; v.Value == "" && from.FieldRef.FieldPath == "" && from.SecretKeyRef.Key == "" {
			t.Errorf("%s is nothing", v.Name)
		}
	}
	for _, name := range []string{"ORDERS_NODE", "ORDERS_DB", "ORDERS_REDIS", "ORDERS_GOSSIP_KEYS", "ORDERS_PEERS_CA"} {
		if !before[name] {
			t.Errorf("%s is not set", name)
		}
	}
	if before["ORDERS_INSECURE"] {
		t.Error("nodes on many machines talk without keys and certificates")
	}
}

// Each file and each key of a secret is in one that the guide says how to make.
func TestSecretsAreThoseThatTheGuideMakes(t *testing.T) {
	t.Parallel()
	m := readManifests(t)
	made := secretsOf(t, read(t, "../docs/guide/cluster.md"))
	where := map[string]string{} // folder of a volume -> secret
	for _, mount := range m.shop.VolumeMounts {
		for _, v := range m.nodes.Spec.Template.Spec.Volumes {
			if v.Name == mount.Name {
				where[mount.MountPath] = v.Secret.SecretName
			}
		}
		if where[mount.MountPath] == "" || !mount.ReadOnly {
			t.Errorf("no volume for %+v", mount)
		}
	}
	needs := map[string][]string{}
	for _, v := range m.shop.Env {
		if ref := v.ValueFrom.SecretKeyRef; ref.Name != "" {
			needs[ref.Name] = append(needs[ref.Name], ref.Key)
		}
		if path.IsAbs(v.Value) {
			secret, ok := where[path.Dir(v.Value)]
			if !ok {
				t.Errorf("%s: nothing is mounted at %s", v.Name, path.Dir(v.Value))
			}
			needs[secret] = append(needs[secret], path.Base(v.Value))
		}
	}
	if len(needs) != 3 {
		t.Errorf("secrets: %v", needs)
	}
	for _, secret := range slices.Sorted(maps.Keys(needs)) {
		for _, key := range needs[secret] {
			if !slices.Contains(made[secret], key) {
				t.Errorf("the guide makes the secret %s with %q, the pods need %q", secret, made[secret], key)
			}
		}
	}
}

// secretsOf finds what commands of a page make: kubectl create secret generic NAME --from-literal=KEY=... --from-file=KEY=....
func secretsOf(t *testing.T, page string) map[string][]string {
	t.Helper()
	made := map[string][]string{}
	for _, command := range regexp.MustCompile(`kubectl create secret generic ([a-z-]+)((?:[^\n]*\\\n)*[^\n]*)`).FindAllStringSubmatch(page, -1) {
		for _, key := range regexp.MustCompile(`--from-(?:literal|file)=([a-z.]+)=`).FindAllStringSubmatch(command[2], -1) {
			made[command[1]] = append(made[command[1]], key[1])
		}
	}
	return made
}

func TestPodsMayDoLittle(t *testing.T) {
	t.Parallel()
	m := readManifests(t)
	pod, c := m.nodes.Spec.Template.Spec, m.shop.SecurityContext
	if s := pod.SecurityContext; !s.RunAsNonRoot || s.RunAsUser == 0 || s.SeccompProfile.Type != "RuntimeDefault" || pod.AutomountServiceAccountToken || pod.EnableServiceLinks {
		t.Errorf("pod: %+v", pod)
	}
	if c.AllowPrivilegeEscalation || !c.ReadOnlyRootFilesystem || !slices.Equal(c.Capabilities.Drop, []string{"ALL"}) {
		t.Errorf("container: %+v", c)
	}
	if m.budget.Spec.MaxUnavailable != 1 || m.nodes.Spec.Replicas < 2 {
		t.Errorf("%d of %d nodes may be missing", m.budget.Spec.MaxUnavailable, m.nodes.Spec.Replicas)
	}
	if r := m.shop.Resources; r.Requests["cpu"] == "" || r.Requests["memory"] == "" || r.Limits["memory"] == "" || r.Limits["cpu"] != "" || !strings.HasSuffix(r.Limits["memory"], "Mi") {
		t.Errorf("resources: %+v", r)
	}
}
