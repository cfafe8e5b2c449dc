package wire

import (
	"encoding/binary"
	"net/netip"
)

// Builders of frames for the tests; each returns the bytes of one layer around another.

var (
	macN1, macN2 = MAC{2, 10, 0, 0, 1, 0}, MAC{2, 10, 0, 0, 2, 0}
	n1, n2       = netip.MustParseAddr("10.10.0.1"), netip.MustParseAddr("10.10.0.2")
	n1v6, n2v6   = netip.MustParseAddr("fd00:10::1"), netip.MustParseAddr("fd00:10::2")
	p1, p2       = netip.MustParseAddr("10.42.1.11"), netip.MustParseAddr("10.42.2.11")
	p1v6, p2v6   = netip.MustParseAddr("fd00:42:1::11"), netip.MustParseAddr("fd00:42:2::11")
	r1, r1v6     = netip.MustParseAddr("10.10.0.254"), netip.MustParseAddr("fd00:10::fe")
	world        = netip.MustParseAddr("192.0.2.1")
)

// twoNodes is a cluster of n1 and n2 with pods behind them and a router between.
func twoNodes() Cluster {
	return Cluster{
		MACs:    map[MAC]bool{macN1: true, macN2: true},
		Routers: map[netip.Addr]bool{r1: true, r1v6: true},
		Nodes:   map[netip.Addr]bool{n1: true, n2: true, n1v6: true, n2v6: true},
		Prefixes: []netip.Prefix{
			netip.MustParsePrefix("10.10.0.1/32"), netip.MustParsePrefix("10.10.0.2/32"),
			netip.MustParsePrefix("fd00:10::1/128"), netip.MustParsePrefix("fd00:10::2/128"),
			netip.MustParsePrefix("10.42.1.0/24"), netip.MustParsePrefix("10.42.2.0/24"),
			netip.MustParsePrefix("fd00:42:1::/64"), netip.MustParsePrefix("fd00:42:2::/64"),
		},
		Port: 51880,
	}
}

func ethernet(to, from MAC, kind uint16, rest []byte) []byte {
	frame := append(append(append([]byte{}, to[:]...), from[:]...), byte(kind>>8), byte(kind))
	return append(frame, rest...)
}

// ip wraps a payload in IPv4 or IPv6, by the family of the addresses, in a frame from n1 to n2.
func ip(from, to netip.Addr, protocol uint8, payload []byte) []byte {
	if from.Is6() {
		return ethernet(macN2, macN1, etherIPv6, ipv6(from, to, protocol, 64, payload))
	}
	return ethernet(macN2, macN1, etherIPv4, ipv4(from, to, protocol, 0, payload))
}

// ipv4 has the fragment field (flags and offset in units of 8 bytes) as given, and identification 7.
func ipv4(from, to netip.Addr, protocol uint8, fragment uint16, payload []byte) []byte {
	header := []byte{0x45, 0, 0, 0, 0, 7, 0, 0, 64, protocol, 0, 0}
	binary.BigEndian.PutUint16(header[2:], uint16(20+len(payload)))
	binary.BigEndian.PutUint16(header[6:], fragment)
	return append(append(append(header, from.AsSlice()...), to.AsSlice()...), payload...)
}

func ipv6(from, to netip.Addr, next, hops uint8, payload []byte) []byte {
	header := []byte{0x60, 0, 0, 0, 0, 0, next, hops}
	binary.BigEndian.PutUint16(header[4:], uint16(len(payload)))
	return append(append(append(header, from.AsSlice()...), to.AsSlice()...), payload...)
}

func udp(from, to uint16, payload []byte) []byte {
	return append(ports(from, to, uint16(8+len(payload)), 0), payload...)
}

func tcp(from, to uint16) []byte { return append(ports(from, to), make([]byte, 16)...) }

func icmp(kind uint8, identifier uint16) []byte {
	return append([]byte{kind, 0, 0, 0}, ports(identifier, 1)...)
}

func vxlan(inner []byte) []byte { return append([]byte{8, 0, 0, 0, 0, 0, 1, 0}, inner...) }

// wireGuard is a message of the given type and length.
func wireGuard(kind byte, length int) []byte {
	message := make([]byte, length)
	message[0] = kind
	return message
}

func ports(values ...uint16) (bytes []byte) {
	for _, value := range values {
		bytes = binary.BigEndian.AppendUint16(bytes, value)
	}
	return bytes
}

func join(parts ...[]byte) (all []byte) {
	for _, part := range parts {
		all = append(all, part...)
	}
	return all
}
