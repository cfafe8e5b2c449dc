package lab

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// valid returns a spec with which nothing is wrong, changed by one function.
func valid(change func(*Spec)) Spec {
	spec := Spec{Name: "x", Nodes: NodeNumbers(3), Pods: 2, CNI: CNIRoutes, MTU: 1500, Agent: &AgentOptions{Binary: "/bin/warren"}}
	if change != nil {
		change(&spec)
	}
	return spec
}

func TestValidate(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Spec)
		want   string
	}{
		{name: "nothing wrong"},
		{name: "no agents", change: func(s *Spec) { s.Agent = nil }},
		{name: "no pods", change: func(s *Spec) { s.Pods = 0 }},
		{name: "smallest MTU", change: func(s *Spec) { s.MTU = 1280 }},
		{name: "smallest MTU of an overlay", change: func(s *Spec) { s.CNI, s.MTU = CNIVXLAN, 1350 }},
		{name: "too small", change: func(s *Spec) { s.MTU = 1279 }, want: "MTU 1279: 1280 to 65535"},
		{name: "too small for an overlay", change: func(s *Spec) { s.CNI, s.MTU = CNIVXLAN, 1349 }, want: "MTU 1349: 1350 to 65535"},
		{name: "a path to one node", change: func(s *Spec) { s.Path = &Path{Node: 3, MTU: 1400} }},
		{name: "a path to a node that has left", change: func(s *Spec) { s.Nodes, s.Path = []int{1, 2}, &Path{Node: 3, MTU: 1400} }},
		{name: "a path to nowhere", change: func(s *Spec) { s.Path = &Path{Node: 0, MTU: 1400} }, want: "path to node number 0: 1 to 200"},
		{name: "a path that is wider than the wire", change: func(s *Spec) { s.Path = &Path{Node: 3, MTU: 1501} }, want: "path MTU 1501: 1280 to the wire's 1500"},
		{name: "a path that is too narrow for IPv6", change: func(s *Spec) { s.Path = &Path{Node: 3, MTU: 1279} }, want: "path MTU 1279: 1280 to the wire's 1500"},
		{name: "name in capitals", change: func(s *Spec) { s.Name = "X" }, want: `lab name "X": at most 32 of a-z, 0-9, and inside '-'`},
		{name: "name that leaves the directory", change: func(s *Spec) { s.Name = "../x" }, want: `lab name "../x": at most 32 of a-z, 0-9, and inside '-'`},
		{name: "no nodes", change: func(s *Spec) { s.Nodes = nil }, want: "0 nodes: 1 to 200"},
		{name: "node twice", change: func(s *Spec) { s.Nodes = []int{1, 1} }, want: "node number 1: 1 to 200, each once"},
		{name: "relative binary", change: func(s *Spec) { s.Agent.Binary = "warren" }, want: `binary "warren": not an absolute path`},
		{name: "with Kubernetes", change: withKube},
		{name: "with Kubernetes, somewhere", change: func(s *Spec) { s.Kube = &KubeOptions{Binaries: "kube", Forwarder: "/bin/warren"} },
			want: `path "kube", for Kubernetes: not absolute`},
		{name: "with Kubernetes, and nowhere to run it", change: func(s *Spec) { withKube(s); s.Nodes = []int{2} },
			want: "no node n1, which Kubernetes' control plane is on"},
		{name: "everything at once", change: func(s *Spec) { s.Nodes, s.Pods, s.CNI = []int{0}, 201, "magic" },
			want: "node number 0: 1 to 200, each once\n201 pods per node: 0 to 200\nCNI \"magic\": \"routes\" or \"vxlan\""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got string
			if err := valid(test.change).Validate(); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Validate (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNextNode(t *testing.T) {
	tests := []struct {
		name  string
		nodes []int
		want  int
	}{
		{name: "after the last", nodes: []int{1, 2, 3}, want: 4},
		{name: "in place of one that left", nodes: []int{1, 3}, want: 2},
		{name: "in place of the first", nodes: []int{2}, want: 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := (Spec{Nodes: test.nodes}).nextNode(); got != test.want {
				t.Errorf("nextNode() = %d, want %d", got, test.want)
			}
		})
	}
}

func TestOwnNamespaces(t *testing.T) {
	all := []string{"warren-wire", "warren-router", "warren-a-router", "warren-a-b-router", "warren-a-wire-router", "warren-n1", "warren-n1-p1", "warren-n12-p3", "warren-a-wire", "warren-a-n1", "warren-a-n1-p1",
		"warren-n1-wire", "warren-n1-n1", "warren-a-b-n1", "warren-a-control", "warren-test-1234", "other", "warren-n1-p1-extra"}
	tests := []struct {
		lab  string
		want []string
	}{
		{lab: DefaultName, want: []string{"warren-wire", "warren-router", "warren-n1", "warren-n1-p1", "warren-n12-p3"}},
		{lab: "a", want: []string{"warren-a-router", "warren-a-wire", "warren-a-n1", "warren-a-n1-p1"}},
		{lab: "n1", want: []string{"warren-n1-wire", "warren-n1-n1"}},
		{lab: "a-b", want: []string{"warren-a-b-router", "warren-a-b-n1"}},
	}
	for _, test := range tests {
		t.Run(test.lab, func(t *testing.T) {
			if diff := cmp.Diff(test.want, ownNamespaces(test.lab, all)); diff != "" {
				t.Errorf("ownNamespaces (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNamespacesAreOwn: what a topology names is what removing the lab looks for.
func TestNamespacesAreOwn(t *testing.T) {
	for _, name := range []string{DefaultName, "a", "n1", "a-b"} {
		names := valid(func(s *Spec) { s.Name, s.Path = name, &Path{Node: 1, MTU: 1400} }).Topology().Namespaces()
		if diff := cmp.Diff(names, ownNamespaces(name, names)); diff != "" {
			t.Errorf("lab %s: namespaces that would stay (-named +removed):\n%s", name, diff)
		}
	}
}

// TestAddressesAreDistinct: no two devices of the largest lab share an address.
func TestAddressesAreDistinct(t *testing.T) {
	topology := valid(func(s *Spec) { s.Nodes, s.Pods, s.Path = NodeNumbers(maxNodes), 8, &Path{Node: maxNodes, MTU: 1400} }).Topology()
	seen := map[string]string{}
	add := func(value, owner string) {
		if first, dup := seen[value]; dup {
			t.Errorf("%s belongs to %s and %s", value, first, owner)
		}
		seen[value] = owner
	}
	for _, side := range []RouterSide{topology.Router.Near, topology.Router.Far} {
		add(side.MAC.String(), side.Port)
		for _, value := range texts(side.Addresses) {
			add(value, side.Port)
		}
	}
	for _, node := range topology.Nodes {
		add(node.MAC.String(), node.Name)
		for _, value := range append(texts(node.Addresses), texts(node.Prefixes)...) {
			add(value, node.Name)
		}
		for _, pod := range node.Pods {
			add(pod.MAC.String(), pod.Namespace)
			for i, addr := range pod.Addresses {
				add(addr.String(), pod.Namespace)
				if !node.Prefixes[i].Contains(addr) {
					t.Errorf("%s: %s is outside %s", pod.Namespace, addr, node.Prefixes[i])
				}
			}
		}
	}
}

func TestParseMountPoints(t *testing.T) {
	text := strings.Join([]string{
		`21 26 0:20 / /proc rw,relatime - proc proc rw`,
		`42 26 0:50 / /run/warren-lab/x/n1/bpf rw - bpf bpf rw,mode=700`,
		`43 26 0:51 / /mnt/with\040blank\134 rw shared:1 - tmpfs tmpfs rw`,
		``,
	}, "\n")
	want := []string{"/proc", "/run/warren-lab/x/n1/bpf", `/mnt/with blank\`}
	if diff := cmp.Diff(want, parseMountPoints(text)); diff != "" {
		t.Errorf("parseMountPoints (-want +got):\n%s", diff)
	}
}

func TestTentative(t *testing.T) {
	tests := []struct {
		name, text string
		want       bool
	}{
		{name: "permanent", text: "fd001000000000000000000000000001 02 40 00 80 eth0\n"},
		{name: "tentative", text: "00000000000000000000000000000001 01 80 10 80 lo\nfd001000000000000000000000000001 02 40 00 c0 eth0\n", want: true},
		{name: "tentative on a bridge without ports", text: "fd004200000100000000000000000001 03 40 00 c0 cni0\n"},
		{name: "none", text: ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := tentative(test.text); got != test.want {
				t.Errorf("tentative = %v, want %v", got, test.want)
			}
		})
	}
}
