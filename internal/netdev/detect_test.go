package netdev

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

// routes answers as Netdev.RouteTo would with at most one default route per family.
type routes struct{ v4, v6 Route }

func (r routes) to(addr netip.Addr) (Route, error) {
	route := r.v4
	if addr.Is6() {
		route = r.v6
	}
	if route.Ifindex == 0 {
		return Route{}, ErrNoRoute
	}
	return route, nil
}

func TestDetectAddresses(t *testing.T) {
	lo := Link{Index: 1, Name: "lo", Addrs: prefixes("127.0.0.1/8", "::1/128")}
	eth0 := Link{Index: 2, Name: "eth0", Addrs: prefixes("10.0.0.1/24", "fd00::1/64", "fe80::1/64")}
	eth1 := Link{Index: 3, Name: "eth1", Addrs: prefixes("10.1.0.1/24")}
	cni0 := Link{Index: 4, Name: "cni0", Kind: "bridge", Addrs: prefixes("10.244.0.1/24")}
	unnamed := Link{Index: 5, Name: "br-8a1e", Kind: "bridge", Addrs: prefixes("172.18.0.1/16")}
	vpn := Link{Index: 6, Name: "tun0", Kind: "tun", L3: true, Addrs: prefixes("10.8.0.2/24")}
	source := func(text string) netip.Addr { return netip.MustParseAddr(text) }

	tests := []struct {
		name   string
		links  []Link
		routes routes
		want   []netip.Addr
		err    []string
	}{
		{
			name:   "one default route, both families from its device",
			links:  []Link{lo, eth0, eth1, cni0},
			routes: routes{v4: Route{Ifindex: 2, Source: source("10.0.0.1")}},
			want:   addrs("10.0.0.1", "fd00::1"),
		},
		{
			name:   "a default route per family on different devices",
			links:  []Link{lo, {Index: 2, Name: "eth0", Addrs: prefixes("10.0.0.1/24")}, {Index: 3, Name: "eth1", Addrs: prefixes("fd01::1/64")}},
			routes: routes{v4: Route{Ifindex: 2, Source: source("10.0.0.1")}, v6: Route{Ifindex: 3, Source: source("fd01::1")}},
			want:   addrs("10.0.0.1", "fd01::1"),
		},
		{
			name:   "IPv4 comes first even when only IPv6 has a default route",
			links:  []Link{lo, eth0},
			routes: routes{v6: Route{Ifindex: 2, Source: source("fd00::1")}},
			want:   addrs("10.0.0.1", "fd00::1"),
		},
		{
			name:   "what the kernel sends from comes first",
			links:  []Link{{Index: 2, Name: "eth0", Addrs: prefixes("10.0.0.1/24", "10.0.0.2/24", "fd00::1/64", "fd00::2/64")}},
			routes: routes{v4: Route{Ifindex: 2, Source: source("10.0.0.2")}, v6: Route{Ifindex: 2, Source: source("fd00::2")}},
			want:   addrs("10.0.0.2", "10.0.0.1", "fd00::2", "fd00::1"),
		},
		{
			name:   "floating service addresses come last, whatever their value",
			links:  []Link{{Index: 2, Name: "eth0", Addrs: prefixes("10.0.0.1/32", "10.0.0.50/24", "fd00::1/128", "fd00::50/64")}},
			routes: routes{v4: Route{Ifindex: 2}},
			want:   addrs("10.0.0.50", "10.0.0.1", "fd00::50", "fd00::1"),
		},
		{
			name:   "IPv4 in the kernel's order, IPv6 by value",
			links:  []Link{{Index: 2, Name: "eth0", Addrs: prefixes("10.0.0.9/24", "10.0.0.1/24", "fd00::9/64", "fd00::1/64")}},
			routes: routes{v4: Route{Ifindex: 2}},
			want:   addrs("10.0.0.9", "10.0.0.1", "fd00::1", "fd00::9"),
		},
		{
			name:   "temporary and deprecated addresses are left out, also as the source",
			links:  []Link{{Index: 2, Name: "eth0", Addrs: prefixes("fd00::1/64", "fd00::abcd/64"), Transient: addrs("fd00::abcd")}},
			routes: routes{v6: Route{Ifindex: 2, Source: source("fd00::abcd")}},
			want:   addrs("fd00::1"),
		},
		{
			name: "a routed fabric: the address is on the loopback, the devices have link-local ones",
			links: []Link{
				{Index: 1, Name: "lo", Addrs: prefixes("127.0.0.1/8", "192.168.99.1/32")},
				{Index: 2, Name: "eth0", Addrs: prefixes("fe80::1/64")},
				{Index: 3, Name: "eth1", Addrs: prefixes("fe80::2/64")},
			},
			routes: routes{v4: Route{Ifindex: 2, Source: source("192.168.99.1")}},
			want:   addrs("192.168.99.1"),
		},
		{
			name:   "a default route into a VPN does not count",
			links:  []Link{lo, eth0, vpn},
			routes: routes{v4: Route{Ifindex: 6, Source: source("10.8.0.2")}},
			want:   addrs("10.0.0.1", "fd00::1"),
		},
		{
			name:   "a source that sits on a CNI device does not count",
			links:  []Link{lo, eth0, cni0},
			routes: routes{v4: Route{Ifindex: 2, Source: source("10.244.0.1")}},
			want:   addrs("10.0.0.1", "fd00::1"),
		},
		{name: "no default route, one device beside those of a CNI", links: []Link{lo, eth0, cni0, unnamed, vpn}, want: addrs("10.0.0.1", "fd00::1")},
		{
			name:  "no default route, the underlay is a bridge with a port that leads out",
			links: []Link{lo, {Index: 2, Name: "eth0", Master: 3}, {Index: 3, Name: "br0", Kind: "bridge", Addrs: prefixes("10.0.0.1/24")}, cni0},
			want:  addrs("10.0.0.1"),
		},
		{
			name:  "no default route, two devices",
			links: []Link{lo, eth0, eth1, cni0},
			err:   []string{"eth0 (10.0.0.1 fd00::1), eth1 (10.1.0.1)", "addresses:"},
		},
		{name: "no default route, no device", links: []Link{lo, cni0}, err: []string{"candidates: none", "addresses:"}},
		{
			name:   "the device of the default route is gone meanwhile",
			links:  []Link{lo, eth1},
			routes: routes{v4: Route{Ifindex: 2, Source: source("10.0.0.1")}},
			want:   addrs("10.1.0.1"),
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := DetectAddresses(test.links, test.routes.to)
			if diff := cmp.Diff(test.want, got, equateNetip); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			checkError(t, err, test.err)
		})
	}
}

// The same against the kernel: a default route, a pod bridge, and the underlay that follows from both.
func TestDetectInNamespace(t *testing.T) {
	n := namespace(t)
	n.addVeth(t, "eth0", "wire")
	n.addr(t, "eth0", "10.0.0.1/24")
	n.addr(t, "eth0", "fd00::1/64")
	n.add(t, &netlink.Bridge{LinkAttrs: attrs("cni0")})
	n.addr(t, "cni0", "10.244.0.1/24")
	defaultRoute := &netlink.Route{LinkIndex: int(n.link(t, "eth0").Index), Gw: addrs("10.0.0.254")[0].AsSlice()}
	if err := n.handle.RouteAdd(defaultRoute); err != nil {
		t.Fatal(err)
	}
	links, err := n.Links()
	if err != nil {
		t.Fatal(err)
	}
	own, err := DetectAddresses(links, n.RouteTo)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(addrs("10.0.0.1", "fd00::1"), own, equateNetip); diff != "" {
		t.Errorf("own addresses (-want +got):\n%s", diff)
	}
	underlays, err := Underlays(links, own, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"eth0"}, namesOf(underlays)); diff != "" {
		t.Errorf("underlays (-want +got):\n%s", diff)
	}
}
