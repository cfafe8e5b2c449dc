package wire

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecode(t *testing.T) {
	flow := func(protocol uint8, from netip.Addr, fromPort uint16, to netip.Addr, toPort uint16) Flow {
		return Flow{protocol, netip.AddrPortFrom(from, fromPort), netip.AddrPortFrom(to, toPort)}
	}
	type summary struct {
		Flow     string
		Fragment Fragment
		ICMPType uint8
		Inner    string
	}
	hopByHop, destination := []byte{60, 0, 5, 2, 0, 0, 1, 0}, []byte{protoUDP, 0, 1, 4, 0, 0, 0, 0}
	tests := []struct {
		name  string
		frame []byte
		want  summary
	}{
		{name: "udp", frame: ip(p1, p2, protoUDP, udp(5, 6, nil)), want: summary{Flow: flow(17, p1, 5, p2, 6).String()}},
		{name: "tcp over ipv6", frame: ip(p1v6, p2v6, protoTCP, tcp(5, 6)), want: summary{Flow: flow(6, p1v6, 5, p2v6, 6).String()}},
		{name: "echo request", frame: ip(n1, n2, protoICMP, icmp(8, 99)), want: summary{Flow: flow(1, n1, 99, n2, 99).String(), ICMPType: 8}},
		{name: "echo reply, ipv6", frame: ip(n1v6, n2v6, protoICMP6, icmp(129, 99)), want: summary{Flow: flow(58, n1v6, 99, n2v6, 99).String(), ICMPType: 129}},
		{name: "icmp error has no identifier", frame: ip(n1, n2, protoICMP, icmp(3, 99)), want: summary{Flow: flow(1, n1, 0, n2, 0).String(), ICMPType: 3}},
		{name: "two VLAN tags", frame: ethernet(macN2, macN1, etherQinQ, join([]byte{0, 1, 0x81, 0, 0, 2, 8, 0}, ipv4(p1, p2, protoUDP, 0, udp(5, 6, nil)))),
			want: summary{Flow: flow(17, p1, 5, p2, 6).String()}},
		{name: "ipv4 options", frame: ethernet(macN2, macN1, etherIPv4, join([]byte{0x46, 0, 0, 32, 0, 7, 0, 0, 64, protoUDP, 0, 0}, p1.AsSlice(), p2.AsSlice(), []byte{1, 1, 1, 1}, udp(5, 6, nil))),
			want: summary{Flow: flow(17, p1, 5, p2, 6).String()}},
		{name: "extension headers", frame: ethernet(macN2, macN1, etherIPv6, ipv6(p1v6, p2v6, 0, 64, join(hopByHop, destination, udp(5, 6, nil)))),
			want: summary{Flow: flow(17, p1v6, 5, p2v6, 6).String()}},
		{name: "first fragment", frame: ethernet(macN2, macN1, etherIPv4, ipv4(p1, p2, protoUDP, 0x2000, udp(5, 6, nil))),
			want: summary{Flow: flow(17, p1, 5, p2, 6).String(), Fragment: Fragment{ID: 7, More: true}}},
		{name: "later fragment has no ports", frame: ethernet(macN2, macN1, etherIPv4, ipv4(p1, p2, protoUDP, 2, udp(5, 6, nil))),
			want: summary{Flow: flow(17, p1, 0, p2, 0).String(), Fragment: Fragment{ID: 7, Offset: 16}}},
		{name: "later fragment, ipv6", frame: ethernet(macN2, macN1, etherIPv6, ipv6(p1v6, p2v6, 44, 64, join([]byte{protoUDP, 0, 0, 17, 0, 0, 0, 9}, udp(5, 6, nil)))),
			want: summary{Flow: flow(17, p1v6, 0, p2v6, 0).String(), Fragment: Fragment{ID: 9, Offset: 16, More: true}}},
		{name: "vxlan", frame: ip(n1, n2, protoUDP, udp(40000, vxlanPort, vxlan(ip(p1, p2, protoTCP, tcp(5, 6))))),
			want: summary{Flow: flow(17, n1, 40000, n2, vxlanPort).String(), Inner: flow(6, p1, 5, p2, 6).String()}},
		{name: "padding is not part of the packet", frame: join(ip(p1, p2, protoUDP, nil), udp(5, 6, nil)), want: summary{Flow: flow(17, p1, 0, p2, 0).String()}},
		{name: "cut in the ip header", frame: ip(p1, p2, protoUDP, nil)[:20], want: summary{Flow: Flow{}.String()}},
		{name: "cut in the ethernet header", frame: []byte{1, 2, 3}, want: summary{Flow: Flow{}.String()}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := Decode(test.frame)
			got := summary{Flow: p.Flow.String(), Fragment: p.Fragment, ICMPType: p.ICMPType}
			if p.Inner != nil {
				got.Inner = p.Inner.Flow.String()
			}
			if !p.Fragment.IsPiece() {
				got.Fragment = Fragment{} // the identification of a whole datagram says nothing
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Decode (-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzDecode: any bytes are read without harm, and never turn into WireGuard unless they are UDP
// between nodes.
func FuzzDecode(f *testing.F) {
	f.Add(ip(n1, n2, protoUDP, udp(51880, 51880, wireGuard(4, 64))))
	f.Add(ip(n1, n2, protoUDP, udp(40000, vxlanPort, vxlan(ip(p1v6, p2v6, protoTCP, tcp(5, 6))))))
	f.Add(ethernet(macN2, macN1, etherIPv6, ipv6(p1v6, p2v6, 44, 64, join([]byte{protoUDP, 0, 0, 17, 0, 0, 0, 9}, udp(5, 6, nil)))))
	cluster := twoNodes()
	f.Fuzz(func(t *testing.T, raw []byte) {
		frame := inspect(raw, cluster, [MagicLen]byte{1, 2, 3, 4, 5, 6, 7, 8})
		packet := Decode(raw)
		if frame.Kind == WireGuard && (packet.Flow.Protocol != protoUDP || !cluster.Nodes[packet.Flow.Source.Addr()]) {
			t.Errorf("judged as WireGuard: %v", packet.Flow)
		}
	})
}
