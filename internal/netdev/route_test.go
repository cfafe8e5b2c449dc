package netdev

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestRouteTo(t *testing.T) {
	n := namespace(t)
	if err := n.SetUp("lo"); err != nil {
		t.Fatal(err)
	}
	n.addVeth(t, "eth0", "wire")
	n.addr(t, "eth0", "10.0.0.1/24")
	n.addr(t, "eth0", "fd00::1/64")
	eth0, lo := n.link(t, "eth0").Index, uint32(1)
	gateway := func(destination, via string) *netlink.Route {
		return &netlink.Route{LinkIndex: int(eth0), Dst: address(destination).IPNet, Gw: net.ParseIP(via)}
	}
	routes := []*netlink.Route{
		gateway("10.1.0.0/16", "10.0.0.254"),
		gateway("fd01::/64", "fd00::fe"),
		{LinkIndex: int(eth0), Dst: address("10.2.0.0/16").IPNet, Via: &netlink.Via{AddrFamily: unix.AF_INET6, Addr: net.ParseIP("fd00::fe")}},
		{Dst: address("10.3.0.0/16").IPNet, Type: unix.RTN_UNREACHABLE},
		{Dst: address("10.4.0.0/16").IPNet, Type: unix.RTN_BLACKHOLE},
	}
	for _, route := range routes {
		if err := n.handle.RouteAdd(route); err != nil {
			t.Fatalf("add route %v: %v", route, err)
		}
	}
	tests := []struct {
		name, to string
		want     Route
		err      error
	}{
		{name: "on the link", to: "10.0.0.2", want: Route{Ifindex: eth0, Source: addrs("10.0.0.1")[0]}},
		{name: "on the link, IPv6", to: "fd00::2", want: Route{Ifindex: eth0, Source: addrs("fd00::1")[0]}},
		{name: "behind a gateway", to: "10.1.2.3", want: Route{eth0, addrs("10.0.0.1")[0], addrs("10.0.0.254")[0]}},
		{name: "behind a gateway, IPv6", to: "fd01::3", want: Route{eth0, addrs("fd00::1")[0], addrs("fd00::fe")[0]}},
		{name: "IPv4 behind an IPv6 gateway", to: "10.2.2.3", want: Route{eth0, addrs("10.0.0.1")[0], addrs("fd00::fe")[0]}},
		{name: "IPv4 in IPv6 notation", to: "::ffff:10.0.0.2", want: Route{Ifindex: eth0, Source: addrs("10.0.0.1")[0]}},
		{name: "its own address", to: "10.0.0.1", want: Route{Ifindex: lo, Source: addrs("10.0.0.1")[0]}},
		{name: "no route", to: "203.0.113.1", err: ErrNoRoute},
		{name: "no route, IPv6", to: "2001:db8::1", err: ErrNoRoute},
		{name: "unreachable", to: "10.3.0.1", err: ErrNoRoute},
		{name: "blackhole", to: "10.4.0.1", err: ErrNoRoute},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := n.RouteTo(netip.MustParseAddr(test.to))
			if !errors.Is(err, test.err) {
				t.Fatalf("error %v, want %v", err, test.err)
			}
			if diff := cmp.Diff(test.want, got, equateNetip); diff != "" {
				t.Errorf("route to %s (-want +got):\n%s", test.to, diff)
			}
		})
	}
}
