package cluster

import (
	"context"
	"fmt"
	"net/netip"

	"warren/internal/lab"
	"warren/internal/lab/netns"
)

// prefixes of the cluster, IPv4 first.
var (
	podPrefixes     = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")}
	servicePrefixes = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}
)

// topologyOf works out the names and addresses of so many nodes. Pods come when Kubernetes has made them.
func topologyOf(r run, nodes int) lab.Topology {
	topology := lab.Topology{Wire: r.name + "-" + lab.WireBridge}
	for i := 1; i <= nodes; i++ {
		name := fmt.Sprintf("node-%d", i)
		topology.Nodes = append(topology.Nodes, lab.Node{
			Number: i, Name: name, Namespace: r.name + "-" + name, Bridge: lab.WireBridge,
			MAC:       lab.MAC{0x02, 0x0a, 0, 0, 0x89, byte(i)},
			Addresses: []netip.Addr{address("10.89.0.1%d", i), address("fd00:89::1%d", i)},
			Prefixes:  []netip.Prefix{netip.PrefixFrom(address("10.244.%d.0", i), 24), netip.PrefixFrom(address("fd00:244:%d::", i), 64)},
		})
	}
	return topology
}

func address(format string, node int) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf(format, node))
}

// gateways would be the way out of the cluster. Nobody has these addresses, but a node without a default route could
// not send to the address of a Service, which the kernel replaces only after it has found a route.
var gateways = []string{"10.89.0.254", "fd00:89::fe"}

// plugIn makes the switch and plugs in every node that is not there yet, with routes to the pods of the others as a CNI
// without an overlay makes them.
func plugIn(ctx context.Context, topology lab.Topology) error {
	if err := netns.Create(ctx, topology.Wire); err != nil {
		return err
	}
	quiet := []netns.Setting{{Key: "ipv6/conf/all/disable_ipv6", Value: "1"}, {Key: "ipv6/conf/default/disable_ipv6", Value: "1"}}
	if err := netns.Set(topology.Wire, quiet); err != nil {
		return err
	}
	wire := ip(topology.Wire, "link set lo up", "link add "+lab.WireBridge+" type bridge mcast_snooping 0", "link set "+lab.WireBridge+" up")
	if err := netns.Batch(ctx, wire); err != nil {
		return err
	}
	for _, n := range topology.Nodes {
		if err := plugInNode(ctx, topology, n); err != nil {
			return err
		}
	}
	return nil
}

func plugInNode(ctx context.Context, topology lab.Topology, n lab.Node) error {
	if err := netns.Create(ctx, n.Namespace); err != nil {
		return err
	}
	if err := netns.Set(n.Namespace, []netns.Setting{
		{Key: "ipv4/ip_forward", Value: "1"},
		{Key: "ipv6/conf/all/forwarding", Value: "1"},
		{Key: "ipv6/conf/default/accept_dad", Value: "0"}, // pods have addresses at once
	}); err != nil {
		return err
	}
	lines := []string{
		"link set lo up",
		fmt.Sprintf("link add eth0 address %s type veth peer name %s netns %s", n.MAC, n.Name, topology.Wire),
		fmt.Sprintf("address add %s/24 dev eth0", n.Addresses[0]),
		fmt.Sprintf("address add %s/64 dev eth0 nodad", n.Addresses[1]),
		"link set eth0 up",
	}
	for _, gateway := range gateways {
		lines = append(lines, "route add default via "+gateway)
	}
	for _, other := range topology.Others(n.Name) {
		for i, prefix := range other.Prefixes {
			lines = append(lines, fmt.Sprintf("route add %s via %s", prefix, other.Addresses[i]))
		}
	}
	if err := netns.Batch(ctx, ip(n.Namespace, lines...)); err != nil {
		return err
	}
	return netns.Batch(ctx, ip(topology.Wire, "link set "+n.Name+" master "+lab.WireBridge+" up"))
}

func ip(namespace string, lines ...string) netns.Script {
	return netns.Script{Namespace: namespace, Tool: "ip", Lines: lines}
}
