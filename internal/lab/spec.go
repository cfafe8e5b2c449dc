package lab

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
)

// DefaultName is the lab of those who name none. Its namespaces are called warren-n1; those of a lab X
// are called warren-X-n1.
const DefaultName = "default"

// CNI is how packets between pods of different nodes travel.
type CNI string

const (
	// CNIRoutes routes pod prefixes over the wire as they are, like a host-gateway CNI.
	CNIRoutes CNI = "routes"
	// CNIVXLAN carries them in VXLAN between the nodes, like flannel.
	CNIVXLAN CNI = "vxlan"
)

// Limits of a lab, set by its addresses: nodes and pods are one byte of them.
const (
	maxNodes = 200
	maxPods  = 200
)

// Overheads of VXLAN over IPv6, the larger one: Ethernet, VXLAN, UDP, IPv6 (RFC 7348 §5).
const vxlanOverhead = 14 + 8 + 8 + 40

// minMTU is the smallest MTU that IPv6 works with (RFC 8200 §5).
const minMTU = 1280

// Spec is what a lab consists of. It is kept as JSON, so that every command knows the lab.
type Spec struct {
	// Name of the lab: letters, digits and '-' in lower case.
	Name string `json:"name"`
	// Nodes holds the numbers of the nodes in ascending order; node 1 is called n1.
	Nodes []int `json:"nodes"`
	// Pods per node.
	Pods int `json:"pods"`
	CNI  CNI `json:"cni"`
	// MTU of the wire in bytes.
	MTU int `json:"mtu"`
	// Path puts a router between one node and the others; nil is one wire for all.
	Path *Path `json:"path,omitempty"`
	// Agent configures the agents; nil is a lab without encryption.
	Agent *AgentOptions `json:"agent,omitempty"`
	// Kube gives the lab a Kubernetes; nil is a lab without.
	Kube *KubeOptions `json:"kube,omitempty"`
	// ControlOf names the lab that this one is the control of; empty for other labs. It goes when
	// that lab goes.
	ControlOf string `json:"control_of,omitempty"`
}

// Path is the way to a node that is not on the wire itself, but behind a router.
type Path struct {
	// Node is the number of the node behind. The path stays when it leaves, and is there when it comes back.
	Node int `json:"node"`
	// MTU is the largest packet that the router forwards whole, in bytes; the devices of the nodes keep
	// the wire's.
	MTU int `json:"mtu"`
	// Silent: nobody hears of it when the router could not forward a packet.
	Silent bool `json:"silent,omitempty"`
}

// AgentOptions are passed on to every agent; empty ones are left to the agent's own defaults.
type AgentOptions struct {
	// Binary is the absolute path of the warren to run.
	Binary   string `json:"binary"`
	Attach   string `json:"attach,omitempty"`
	Ingress  string `json:"ingress,omitempty"`
	Mode     string `json:"mode,omitempty"`
	LogLevel string `json:"log_level,omitempty"`
}

// NodeNumbers returns 1…n.
func NodeNumbers(n int) []int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i + 1
	}
	return numbers
}

var labName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// ValidName accepts what can be part of a namespace's name: at most 32 of a–z, 0–9 and inner '-'.
func ValidName(name string) error {
	if !labName.MatchString(name) {
		return fmt.Errorf("lab name %q: at most 32 of a-z, 0-9, and inside '-'", name)
	}
	return nil
}

// Validate reports every problem of the spec at once.
func (s Spec) Validate() error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if err := ValidName(s.Name); err != nil {
		problems = append(problems, err)
	}
	if len(s.Nodes) == 0 || len(s.Nodes) > maxNodes {
		problem("%d nodes: 1 to %d", len(s.Nodes), maxNodes)
	}
	for i, n := range s.Nodes {
		if n < 1 || n > maxNodes || slices.Contains(s.Nodes[:i], n) {
			problem("node number %d: 1 to %d, each once", n, maxNodes)
		}
	}
	if s.Pods < 0 || s.Pods > maxPods {
		problem("%d pods per node: 0 to %d", s.Pods, maxPods)
	}
	if s.CNI != CNIRoutes && s.CNI != CNIVXLAN {
		problem("CNI %q: %q or %q", s.CNI, CNIRoutes, CNIVXLAN)
	}
	if s.MTU > 65535 || s.podMTU() < minMTU {
		problem("MTU %d: %d to 65535", s.MTU, minMTU+s.MTU-s.podMTU())
	}
	if s.Path != nil {
		if n := s.Path.Node; n < 1 || n > maxNodes {
			problem("path to node number %d: 1 to %d", n, maxNodes)
		}
		if s.Path.MTU < minMTU || s.Path.MTU > s.MTU {
			problem("path MTU %d: %d to the wire's %d", s.Path.MTU, minMTU, s.MTU)
		}
	}
	if s.Agent != nil && !filepath.IsAbs(s.Agent.Binary) {
		problem("binary %q: not an absolute path", s.Agent.Binary)
	}
	if s.Kube != nil {
		problems = append(problems, s.Kube.validate(s.Nodes)...)
	}
	return errors.Join(problems...)
}

// podMTU is what is left for packets of pods.
func (s Spec) podMTU() int {
	if s.CNI == CNIVXLAN {
		return s.MTU - vxlanOverhead
	}
	return s.MTU
}

// nextNode is the smallest node number that is not taken: who joins after another left gets its
// name and addresses, as a replaced machine does.
func (s Spec) nextNode() int {
	for n := 1; ; n++ {
		if !slices.Contains(s.Nodes, n) {
			return n
		}
	}
}
