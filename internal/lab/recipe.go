package lab

import (
	"fmt"
	"net/netip"

	"warren/internal/lab/netns"
)

// Names of the VXLAN devices and their parameters, as flannel has them.
const (
	vxlanDevice  = "flannel.1"
	vxlanDevice6 = "flannel-v6.1"
	vxlanID      = 1
	// VXLANPort is the UDP port of the overlay.
	VXLANPort = 8472
)

// recipe turns a spec into the commands that build it. It is pure; package netns runs the commands.
type recipe struct {
	spec Spec
	topo Topology
}

func newRecipe(spec Spec) recipe { return recipe{spec: spec, topo: spec.Topology()} }

// wireSettings keep the switch silent: what is seen on the wire comes from nodes.
func wireSettings() []netns.Setting {
	return []netns.Setting{
		{Key: "ipv6/conf/all/disable_ipv6", Value: "1"},
		{Key: "ipv6/conf/default/disable_ipv6", Value: "1"},
		{Key: "bridge/bridge-nf-call-iptables", Value: "0", Optional: true},
		{Key: "bridge/bridge-nf-call-ip6tables", Value: "0", Optional: true},
	}
}

// hostSettings are what a CNI sets on a node, and what makes the lab the same on every machine: a new
// namespace inherits some settings of the machine. Without duplicate address detection IPv6 works
// at once.
func hostSettings(forward bool) []netns.Setting {
	settings := []netns.Setting{
		{Key: "ipv6/conf/all/disable_ipv6", Value: "0"},
		{Key: "ipv6/conf/default/disable_ipv6", Value: "0"},
		{Key: "ipv6/conf/all/accept_dad", Value: "0"},
		{Key: "ipv6/conf/default/accept_dad", Value: "0"},
		{Key: "ipv6/conf/all/accept_ra", Value: "0"},
		{Key: "ipv6/conf/default/accept_ra", Value: "0"},
		{Key: "ipv4/conf/all/rp_filter", Value: "0"},
		{Key: "ipv4/conf/default/rp_filter", Value: "0"},
	}
	if forward {
		settings = append(settings,
			netns.Setting{Key: "ipv4/ip_forward", Value: "1"},
			netns.Setting{Key: "ipv6/conf/all/forwarding", Value: "1"})
	}
	return settings
}

// wire makes the switches.
func (r recipe) wire() []netns.Script {
	lines := []string{"link set lo up"}
	for _, bridge := range r.topo.Bridges() {
		lines = append(lines,
			f("link add %s mtu %d type bridge mcast_snooping 0", bridge, r.spec.MTU),
			f("link set %s up", bridge))
	}
	return []netns.Script{ip(r.topo.Wire, lines...)}
}

// router makes the router. Its devices have the MTU of the wire, since one that has less loses larger packets
// without a word; it is the routes that have the MTU of the path.
func (r recipe) router() []netns.Script {
	router := r.topo.Router
	if router == nil {
		return nil
	}
	lines := []string{"link set lo up"}
	var ports []string
	for _, side := range []RouterSide{router.Near, router.Far} {
		lines = append(lines,
			f("link add %s mtu %d address %s type veth peer name %s mtu %d netns %s", side.Device, r.spec.MTU, side.MAC, side.Port, r.spec.MTU, r.topo.Wire),
			f("address add %s/24 dev %s noprefixroute", side.Addresses[0], side.Device),
			f("address add %s/64 dev %s nodad noprefixroute", side.Addresses[1], side.Device),
			f("link set %s up", side.Device))
		ports = append(ports, f("link set %s master %s up", side.Port, side.Bridge))
	}
	scripts := []netns.Script{ip(router.Namespace, lines...), ip(r.topo.Wire, ports...)}
	if r.spec.Path.Silent {
		scripts = append(scripts, silence(router.Namespace)...)
	}
	return scripts
}

// silence loses every ICMP message that a machine sends of its own accord; neighbour discovery asks no route.
func silence(namespace string) []netns.Script {
	return []netns.Script{
		ip(namespace, "rule add priority 1 iif lo ipproto icmp blackhole"),
		{Namespace: namespace, Tool: "ip", Options: []string{"-6"}, Lines: []string{"rule add priority 1 iif lo ipproto ipv6-icmp blackhole"}},
	}
}

// learn tells the router where a node and, without an overlay, its pods are, as the route table of a cloud does. It
// does no harm when the node has left.
func (r recipe) learn(n Node) []netns.Script {
	side, ok := r.topo.side(n)
	if !ok {
		return nil
	}
	var lines []string
	for i, address := range n.Addresses {
		lines = append(lines, f("route replace %s dev %s mtu lock %d", host(address), side.Device, r.spec.Path.MTU))
		if r.spec.CNI == CNIRoutes {
			lines = append(lines, f("route replace %s via %s dev %s onlink mtu lock %d", n.Prefixes[i], address, side.Device, r.spec.Path.MTU))
		}
	}
	return []netns.Script{ip(r.topo.Router.Namespace, lines...)}
}

// node makes one node with its pods and plugs it in. It can reach nobody yet: see join.
func (r recipe) node(n Node) []netns.Script {
	scripts := []netns.Script{
		ip(n.Namespace, r.nodeLines(n)...),
		ip(r.topo.Wire, f("link set %s master %s up", n.Name, n.Bridge)),
	}
	scripts = append(scripts, r.learn(n)...)
	if r.spec.Kube != nil {
		return scripts // CNI plugins make the pods' devices and the bridge
	}
	for _, pod := range n.Pods {
		scripts = append(scripts, r.pod(n, pod)...)
	}
	return scripts
}

func (r recipe) nodeLines(n Node) []string {
	lines := []string{
		"link set lo up",
		f("link add eth0 mtu %d address %s type veth peer name %s mtu %d netns %s", r.spec.MTU, n.MAC, n.Name, r.spec.MTU, r.topo.Wire),
		f("address add %s/24 dev eth0", n.Addresses[0]),
		f("address add %s/64 dev eth0 nodad", n.Addresses[1]),
		"link set eth0 up",
	}
	if r.spec.Kube == nil {
		lines = append(lines,
			f("link add cni0 mtu %d address %s type bridge", r.spec.podMTU(), macOf(macBridge, n.Number, 0)),
			f("address add %s/24 dev cni0", n.gateways()[0]),
			f("address add %s/64 dev cni0 nodad", n.gateways()[1]),
			"link set cni0 up")
	}
	if r.spec.CNI == CNIVXLAN {
		lines = append(lines, r.vxlanLines(n)...)
	}
	return lines
}

// vxlanLines make one VXLAN device per family. Its address is the first of the pod prefix, so that
// packets of the node itself to pods of others travel in the overlay, too.
func (r recipe) vxlanLines(n Node) []string {
	var lines []string
	for _, overlay := range overlays(n) {
		lines = append(lines,
			f("link add %s mtu %d address %s type vxlan id %d local %s dev eth0 dstport %d nolearning",
				overlay.device, r.spec.podMTU(), overlay.mac, vxlanID, overlay.endpoint, VXLANPort),
			f("address add %s dev %s", host(overlay.prefix.Addr()), overlay.device),
			f("link set %s up", overlay.device))
	}
	return lines
}

func (r recipe) pod(n Node, p Pod) []netns.Script {
	gateways := n.gateways()
	return []netns.Script{
		ip(p.Namespace,
			"link set lo up",
			f("link add eth0 mtu %d address %s type veth peer name %s mtu %d netns %s", r.spec.podMTU(), p.MAC, p.Name, r.spec.podMTU(), n.Namespace),
			f("address add %s/24 dev eth0", p.Addresses[0]),
			f("address add %s/64 dev eth0 nodad", p.Addresses[1]),
			"link set eth0 up"),
		ip(n.Namespace, f("link set %s master cni0 up", p.Name)),
		ip(p.Namespace,
			f("route add default via %s dev eth0", gateways[0]),
			f("route add default via %s dev eth0", gateways[1])),
	}
}

// join tells a node how another one and its pods are reached.
func (r recipe) join(n, other Node) []netns.Script {
	gateways := r.gateways(n, other)
	var lines []string
	for i, gateway := range gateways {
		if gateway != other.Addresses[i] {
			lines = append(lines, f("route replace %s via %s dev eth0", host(other.Addresses[i]), gateway))
		}
	}
	if r.spec.CNI == CNIVXLAN {
		return append([]netns.Script{ip(n.Namespace, lines...)}, joinOverlay(n, other)...)
	}
	for i, prefix := range other.Prefixes {
		lines = append(lines, f("route replace %s via %s dev eth0", prefix, gateways[i]))
	}
	return []netns.Script{ip(n.Namespace, lines...)}
}

// gateways are the next hops from a node to another, IPv4 first: the other itself on the same switch, otherwise the
// router.
func (r recipe) gateways(n, other Node) []netip.Addr {
	if side, ok := r.topo.side(n); ok && n.Bridge != other.Bridge {
		return side.Addresses
	}
	return other.Addresses
}

// part makes a node forget another one.
func (r recipe) part(n, other Node) []netns.Script {
	var lines []string
	for i, prefix := range other.Prefixes {
		lines = append(lines, f("route delete %s", prefix))
		if n.Bridge != other.Bridge {
			lines = append(lines, f("route delete %s", host(other.Addresses[i])))
		}
	}
	scripts := []netns.Script{ip(n.Namespace, lines...)}
	if r.spec.CNI == CNIVXLAN {
		for _, o := range overlays(other) {
			scripts = append(scripts,
				ip(n.Namespace, f("neighbor delete %s lladdr %s dev %s", o.prefix.Addr(), o.mac, o.device)),
				netns.Script{Namespace: n.Namespace, Tool: "bridge", Lines: []string{f("fdb delete %s dev %s dst %s", o.mac, o.device, o.endpoint)}})
		}
	}
	return scripts
}

// overlay is one family of a node as the others reach it by VXLAN.
type overlay struct {
	device   string
	mac      MAC
	endpoint netip.Addr
	prefix   netip.Prefix
}

func overlays(n Node) []overlay {
	return []overlay{
		{device: vxlanDevice, mac: macOf(macVXLAN, n.Number, 0), endpoint: n.Addresses[0], prefix: n.Prefixes[0]},
		{device: vxlanDevice6, mac: macOf(macVXLAN6, n.Number, 0), endpoint: n.Addresses[1], prefix: n.Prefixes[1]},
	}
}

// joinOverlay writes what flannel writes: a route by the other's VXLAN device, the address of that
// device, and behind which node it is. Nothing is learned from packets.
func joinOverlay(n, other Node) []netns.Script {
	var lines, forwarding []string
	for _, o := range overlays(other) {
		gateway := o.prefix.Addr()
		lines = append(lines,
			f("neighbor replace %s lladdr %s dev %s nud permanent", gateway, o.mac, o.device),
			f("route replace %s via %s dev %s onlink", o.prefix, gateway, o.device))
		forwarding = append(forwarding, f("fdb replace %s dev %s dst %s self permanent", o.mac, o.device, o.endpoint))
	}
	return []netns.Script{
		ip(n.Namespace, lines...),
		{Namespace: n.Namespace, Tool: "bridge", Lines: forwarding},
	}
}

func ip(namespace string, lines ...string) netns.Script {
	return netns.Script{Namespace: namespace, Tool: "ip", Lines: lines}
}

func host(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

func f(format string, args ...any) string { return fmt.Sprintf(format, args...) }
