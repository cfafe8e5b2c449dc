package lab

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
)

// Switches in the wire's namespace; their ports are named after the nodes.
const (
	// WireBridge is the switch of all nodes but the one behind a router.
	WireBridge = "wire"
	// FarBridge is the switch between the router and the node behind it.
	FarBridge = "far"
)

// RouterName is the place of the router.
const RouterName = "router"

// Port is the UDP port of the agents' WireGuard device.
const Port = 51880

// MAC is an Ethernet address.
type MAC [6]byte

// String returns the usual notation with colons.
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// The kinds of device that have an address of the lab's making; all addresses are locally
// administered (bit 1 of the first byte).
const (
	macNode   = 0x0a
	macBridge = 0x0b
	macPod    = 0x0c
	macVXLAN  = 0x0d
	macVXLAN6 = 0x0e
	macRouter = 0x0f
)

func macOf(kind byte, node, pod int) MAC { return MAC{0x02, kind, 0, 0, byte(node), byte(pod)} }

// Topology is a spec with every name and address worked out. The same spec gives the same topology.
//
//	            bridge `wire`, namespace warren-wire
//	      port n1 │                      │ port n2
//	┌──────── eth0 10.10.0.1 ┐    ┌── eth0 10.10.0.2, fd00:10::2 ─────────┐
//	│ warren-n1              │    │ warren-n2                             │
//	│ bridge cni0 10.42.1.1  │    │ bridge cni0 10.42.2.1, fd00:42:2::1   │
//	└─── port p1 ── port p2 ─┘    └─── port p1 ── port p2 ────────────────┘
//	          │        │                    │        │
//	        eth0      eth0                eth0      eth0 10.42.2.12, fd00:42:2::12
//	  warren-n1-p1  warren-n1-p2    warren-n2-p1  warren-n2-p2
//
// With a path to n2, it has other addresses and is plugged in behind a router:
//
//	  bridge `wire`, namespace warren-wire             bridge `far`, namespace warren-wire
//	port n1 │     │ port r-wire                      port r-far │     │ port n2
//	        │     └ eth0 10.10.0.254   eth1 10.10.2.254 ┘     └ eth0 10.10.2.2, fd00:10:2::2
//	                           warren-router
type Topology struct {
	// Wire is the namespace of the switches.
	Wire string
	// Router is nil where all nodes are on one wire.
	Router *Router
	Nodes  []Node
}

// Router forwards between the wire and the node behind it. It is no node.
type Router struct {
	Namespace string
	// Near is its side at the wire, Far the one at the node behind.
	Near, Far RouterSide
}

// RouterSide is one device of the router.
type RouterSide struct {
	// Device in the router's namespace.
	Device string
	// Bridge that it is plugged into, and the name of its port there.
	Bridge, Port string
	MAC          MAC
	// Addresses, IPv4 first; the gateways of the nodes on that side.
	Addresses []netip.Addr
}

// Node is one machine of the lab.
type Node struct {
	Number int
	// Name is "n1"; also the name of its port on the wire.
	Name      string
	Namespace string
	// Bridge that the node is plugged into.
	Bridge string
	// MAC of eth0.
	MAC MAC
	// Addresses on its switch, IPv4 first.
	Addresses []netip.Addr
	// Prefixes of the pods, IPv4 first.
	Prefixes []netip.Prefix
	Pods     []Pod
}

// Pod is one pod of a node.
type Pod struct {
	Number int
	// Name is "p1"; also the name of its port on the node's bridge.
	Name      string
	Namespace string
	MAC       MAC
	// Addresses, IPv4 first.
	Addresses []netip.Addr
}

// Topology works out the names and addresses. The spec must be valid.
func (s Spec) Topology() Topology {
	prefix := namespacePrefix(s.Name)
	topology := Topology{Wire: prefix + WireBridge}
	if s.Path != nil {
		topology.Router = router(prefix, s.Path.Node)
	}
	for _, number := range s.Nodes {
		segment, bridge := 0, WireBridge
		if s.Path != nil && s.Path.Node == number {
			segment, bridge = number, FarBridge
		}
		n := node(prefix, number, s.Pods)
		n.Bridge, n.Addresses = bridge, onSegment(segment, number)
		topology.Nodes = append(topology.Nodes, n)
	}
	return topology
}

// routerHost is the last part of a router's addresses, over those of all nodes.
const routerHost = 254

func router(prefix string, behind int) *Router {
	side := func(device, bridge string, segment, number int) RouterSide {
		return RouterSide{Device: device, Bridge: bridge, Port: "r-" + bridge, MAC: macOf(macRouter, 0, number), Addresses: onSegment(segment, routerHost)}
	}
	return &Router{Namespace: prefix + RouterName, Near: side("eth0", WireBridge, 0, 0), Far: side("eth1", FarBridge, behind, 1)}
}

// onSegment are the addresses of one machine on a switch: segment 0 is the wire, others are named after the node on
// them.
func onSegment(segment, host int) []netip.Addr {
	return []netip.Addr{v4(10, 10, segment, host), v6(0x10, segment, host)}
}

// node works out all of a node but how it is plugged in.
func node(prefix string, number, pods int) Node {
	name := nodeName(number)
	n := Node{
		Number:    number,
		Name:      name,
		Namespace: prefix + name,
		MAC:       macOf(macNode, number, 0),
		Prefixes:  []netip.Prefix{netip.PrefixFrom(v4(10, 42, number, 0), 24), netip.PrefixFrom(v6(0x42, number, 0), 64)},
	}
	for p := 1; p <= pods; p++ {
		n.Pods = append(n.Pods, n.pod(p))
	}
	return n
}

func nodeName(number int) string { return fmt.Sprintf("n%d", number) }

// pod works out one pod; the addresses below 11 are the bridge's and spare.
func (n Node) pod(number int) Pod {
	name := fmt.Sprintf("p%d", number)
	return Pod{
		Number:    number,
		Name:      name,
		Namespace: n.Namespace + "-" + name,
		MAC:       macOf(macPod, n.Number, number),
		Addresses: []netip.Addr{v4(10, 42, n.Number, 10+number), v6(0x42, n.Number, 0x10+number)},
	}
}

// gateways are the addresses of cni0.
func (n Node) gateways() []netip.Addr {
	return []netip.Addr{v4(10, 42, n.Number, 1), v6(0x42, n.Number, 1)}
}

// side returns the side of the router at a node; false where there is no router.
func (t Topology) side(n Node) (RouterSide, bool) {
	switch {
	case t.Router == nil:
		return RouterSide{}, false
	case n.Bridge == FarBridge:
		return t.Router.Far, true
	}
	return t.Router.Near, true
}

// Bridges are the switches in the wire's namespace.
func (t Topology) Bridges() []string {
	if t.Router == nil {
		return []string{WireBridge}
	}
	return []string{WireBridge, FarBridge}
}

// Node returns the node of a name.
func (t Topology) Node(name string) (Node, bool) {
	i := slices.IndexFunc(t.Nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		return Node{}, false
	}
	return t.Nodes[i], true
}

// Others returns the nodes without one.
func (t Topology) Others(name string) []Node {
	return slices.DeleteFunc(slices.Clone(t.Nodes), func(n Node) bool { return n.Name == name })
}

// Pod returns the pod of a name.
func (n Node) Pod(name string) (Pod, bool) {
	i := slices.IndexFunc(n.Pods, func(p Pod) bool { return p.Name == name })
	if i < 0 {
		return Pod{}, false
	}
	return n.Pods[i], true
}

// Namespaces returns the names of the node's namespaces, its own first.
func (n Node) Namespaces() []string {
	names := []string{n.Namespace}
	for _, pod := range n.Pods {
		names = append(names, pod.Namespace)
	}
	return names
}

// Namespaces returns the names of all namespaces, the wire's first.
func (t Topology) Namespaces() []string {
	names := []string{t.Wire}
	if t.Router != nil {
		names = append(names, t.Router.Namespace)
	}
	for _, node := range t.Nodes {
		names = append(names, node.Namespaces()...)
	}
	return names
}

func namespacePrefix(lab string) string {
	if lab == DefaultName {
		return "warren-"
	}
	return "warren-" + lab + "-"
}

// ownNamespaces picks the names that belong to the lab. What a spec says is not enough: a lab that
// was interrupted while it grew or shrank has namespaces that its spec does not name.
func ownNamespaces(lab string, names []string) []string {
	own := regexp.MustCompile("^" + regexp.QuoteMeta(namespacePrefix(lab)) + `(wire|router|n\d+(-p\d+)?)$`)
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !own.MatchString(name) })
}

func v4(a, b, c, d int) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(a), byte(b), byte(c), byte(d)})
}

// v6 returns fd00:a:b::c.
func v6(a, b, c int) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfd, 2: byte(a >> 8), 3: byte(a), 4: byte(b >> 8), 5: byte(b), 14: byte(c >> 8), 15: byte(c)})
}
