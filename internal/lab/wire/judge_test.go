package wire

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
)

func TestJudge(t *testing.T) {
	const port = 51880
	solicitation := func(hops uint8) []byte {
		return ethernet(macN2, macN1, etherIPv6, ipv6(n1v6, n2v6, protoICMP6, hops, icmp(135, 0)))
	}
	elsewhere := MAC{2, 0xca}
	// counted is data with a counter.
	counted := func(length int, counter uint64) []byte {
		return binary.LittleEndian.AppendUint64(wireGuard(4, length)[:8], counter)
	}
	data := func(length int, counter uint64) []byte {
		return ip(n1, n2, protoUDP, udp(port, port, join(counted(length, counter), make([]byte, length-16))))
	}
	// tooBig is an error about a packet, of which it quotes so many bytes.
	tooBig := func(from netip.Addr, about []byte, quoted int) []byte {
		return ip(from, n1, protoICMP, join([]byte{3, 4, 0, 0, 0, 0, 5, 120}, about[14:14+quoted]))
	}
	encrypted := ip(n1, n2, protoUDP, udp(port, port, wireGuard(4, 1456)))
	piece := ethernet(macN2, macN1, etherIPv4, ipv4(n1, n2, protoUDP, 175, make([]byte, 80)))
	tests := []struct {
		name  string
		frame []byte
		want  Kind
	}{
		{name: "handshake initiation", frame: ip(n1, n2, protoUDP, udp(port, port, wireGuard(1, 148))), want: WireGuard},
		{name: "handshake response", frame: ip(n2, n1, protoUDP, udp(port, port, wireGuard(2, 92))), want: WireGuard},
		{name: "cookie", frame: ip(n1v6, n2v6, protoUDP, udp(port, port, wireGuard(3, 64))), want: WireGuard},
		{name: "keepalive", frame: ip(n1, n2, protoUDP, udp(port, port, wireGuard(4, 32))), want: WireGuard},
		{name: "data", frame: ip(n1, n2, protoUDP, udp(port, port, wireGuard(4, 1456))), want: WireGuard},
		{name: "between devices of later keys", frame: ip(n1, n2, protoUDP, udp(port+2, port+1, wireGuard(4, 1456))), want: WireGuard},
		{name: "the last message of a session", frame: data(96, mostMessages-1), want: WireGuard},
		{name: "padded up to an MTU of 1500", frame: data(1500+32, 7), want: WireGuard},
		{name: "padded up to the smallest MTU", frame: data(1280+32, 7), want: WireGuard},
		{name: "larger than the MTU: 4000 of 1500 is 2 times 1500 and 1000, padded to 1008", frame: data(4008+32, 7), want: WireGuard},
		{name: "data cut into fragments, the first", frame: ethernet(macN2, macN1, etherIPv4, ipv4(n1, n2, protoUDP, 0x2000, join(ports(port, port, 8+1472, 0), wireGuard(4, 1400)))), want: WireGuard},
		{name: "later fragment between nodes", frame: ethernet(macN2, macN1, etherIPv4, ipv4(n1, n2, protoUDP, 175, make([]byte, 80))), want: Piece},

		{name: "clear text from the port of WireGuard", frame: ip(n1, n2, protoUDP, udp(port, port, []byte("GET / HTTP/1.1\r\n\r\n"))), want: Clear},
		{name: "data of a length that padding forbids", frame: ip(n1, n2, protoUDP, udp(port, port, wireGuard(4, 100))), want: Clear},
		{name: "data one byte below the smallest MTU", frame: data(1279+32, 7), want: Clear},
		{name: "data without room for a tag", frame: data(31, 7), want: Clear},
		{name: "large data with a counter that no session reaches", frame: data(4008+32, mostMessages), want: Clear},
		{name: "large text behind type and reserved bytes", frame: ip(n1, n2, protoUDP, udp(port, port, join([]byte{4, 0, 0, 0}, bytes.Repeat([]byte("GET / HTTP/1.1 "), 100)))), want: Clear},
		{name: "data cut off before its counter", frame: ethernet(macN2, macN1, etherIPv4, ipv4(n1, n2, protoUDP, 0x2000, join(ports(port, port, 8+1472, 0), wireGuard(4, 8)))), want: Clear},
		{name: "reserved bytes used", frame: ip(n1, n2, protoUDP, udp(port, port, join([]byte{4, 1, 0, 0}, make([]byte, 60)))), want: Clear},
		{name: "empty datagram", frame: ip(n1, n2, protoUDP, udp(port, port, nil)), want: Clear},
		{name: "from a port behind those of WireGuard", frame: ip(n1, n2, protoUDP, udp(port+4, port, wireGuard(4, 64))), want: Clear},
		{name: "from another port", frame: ip(n1, n2, protoUDP, udp(9, port, wireGuard(4, 64))), want: Clear},
		{name: "WireGuard between pods is a pod's", frame: ip(p1, p2, protoUDP, udp(port, port, wireGuard(4, 64))), want: Clear},
		{name: "WireGuard from a pod", frame: ip(p1, n2, protoUDP, udp(port, port, wireGuard(4, 64))), want: Clear},
		{name: "later fragment between pods", frame: ethernet(macN2, macN1, etherIPv4, ipv4(p1, p2, protoUDP, 175, make([]byte, 80))), want: Clear},
		{name: "later fragment of tcp", frame: ethernet(macN2, macN1, etherIPv4, ipv4(n1, n2, protoTCP, 175, make([]byte, 80))), want: Clear},
		{name: "pod to pod", frame: ip(p1, p2, protoTCP, tcp(5, 6)), want: Clear},
		{name: "host to pod, ipv6", frame: ip(n1v6, p2v6, protoTCP, tcp(5, 6)), want: Clear},
		{name: "overlay", frame: ip(n1, n2, protoUDP, udp(40000, vxlanPort, vxlan(ip(p1, p2, protoTCP, tcp(5, 6))))), want: Clear},
		{name: "unknown ether type to a node", frame: ethernet(macN2, macN1, 0x88b5, []byte("secret")), want: Clear},
		{name: "addresses of others, but to a node", frame: ip(world, world, protoTCP, tcp(5, 6)), want: Clear},
		{name: "to a pod, whatever the Ethernet address", frame: ethernet(elsewhere, macN1, etherIPv4, ipv4(p1, p2, protoTCP, 0, tcp(5, 6))), want: Clear},
		{name: "unreadable, to a node", frame: ethernet(macN2, macN1, etherIPv4, []byte{0x45}), want: Clear},

		{name: "ARP", frame: ethernet(macN2, macN1, etherARP, make([]byte, 28)), want: Neighbours},
		{name: "neighbour solicitation", frame: solicitation(255), want: Neighbours},
		{name: "neighbour solicitation that was forwarded", frame: solicitation(254), want: Clear},
		{name: "echo with hop limit 255", frame: ethernet(macN2, macN1, etherIPv6, ipv6(n1v6, n2v6, protoICMP6, 255, icmp(128, 1))), want: Clear},

		{name: "a router refuses a message", frame: tooBig(r1, encrypted, 120), want: Refused},
		{name: "a router refuses a message, ipv6", frame: ip(r1v6, n1v6, protoICMP6, join([]byte{2, 0, 0, 0, 0, 0, 5, 120}, ip(n1v6, n2v6, protoUDP, udp(port, port, wireGuard(4, 1456)))[14:])), want: Refused},
		{name: "a router refuses a piece", frame: tooBig(r1, piece, 60), want: Refused},
		{name: "a router quotes clear text", frame: tooBig(r1, ip(n1, n2, protoTCP, tcp(5, 6)), 28), want: Clear},
		{name: "a router quotes no more than the ports", frame: tooBig(r1, encrypted, 28), want: Clear},
		{name: "a node that says it is a router", frame: tooBig(n2, encrypted, 120), want: Clear},
		{name: "a router's own words", frame: ip(r1, n1, protoICMP, icmp(8, 1)), want: Clear},

		{name: "between others", frame: ethernet(elsewhere, macN1, etherIPv4, ipv4(world, world, protoUDP, 0, udp(9, 9, nil))), want: Outside},
		{name: "multicast of the link", frame: ethernet(MAC{0x33, 0x33, 0, 0, 0, 0x16}, macN1, etherIPv6, ipv6(n1v6, netip.MustParseAddr("ff02::16"), protoICMP6, 1, icmp(143, 0))), want: Outside},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := twoNodes().Judge(Decode(test.frame)); got != test.want {
				t.Errorf("Judge = %v, want %v", got, test.want)
			}
		})
	}
}
