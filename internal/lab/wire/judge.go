package wire

import (
	"encoding/binary"
	"net/netip"
)

// Kind is what a frame is, seen by somebody who wants nothing in clear between nodes.
type Kind uint8

const (
	// Outside: not between nodes of the cluster.
	Outside Kind = iota
	// Clear: between nodes, and readable by whoever is on the wire.
	Clear
	// WireGuard: between nodes, and a message of the WireGuard protocol from and to its port.
	WireGuard
	// Piece: a later fragment between nodes; Settle tells what it is a piece of.
	Piece
	// Neighbours: ARP, or neighbour discovery that no router has forwarded.
	Neighbours
	// Refused: a router's error about a WireGuard message, which it quotes the beginning of.
	Refused
)

// String returns the word used in reports.
func (k Kind) String() string {
	return [...]string{"outside", "clear", "wireguard", "piece", "neighbours", "refused"}[k]
}

// Cluster is what Judge knows of the nodes.
type Cluster struct {
	// MACs of the nodes' devices on the wire, and of the routers'.
	MACs map[MAC]bool
	// Routers are the addresses of routers between nodes.
	Routers map[netip.Addr]bool
	// Nodes are the nodes' addresses on the wire: WireGuard has no others.
	Nodes map[netip.Addr]bool
	// Prefixes of everything that belongs to the cluster, the nodes' addresses included.
	Prefixes []netip.Prefix
	// Port is the first of WireGuard's four: a node whose key is being replaced, or whose peers' keys are,
	// has more than one device.
	Port uint16
}

// Judge tells what a frame is. When in doubt it is clear text.
func (c Cluster) Judge(p Packet) Kind {
	switch {
	case p.EtherType == etherARP, p.neighbourDiscovery():
		return Neighbours
	case !c.between(p):
		return Outside
	case c.nodeToNode(p) && p.Flow.Protocol == protoUDP && p.Fragment.Offset > 0:
		return Piece
	case c.nodeToNode(p) && c.wireGuard(p):
		return WireGuard
	case c.refused(p):
		return Refused
	}
	return Clear
}

// between accepts what is addressed to a node, by Ethernet or by IP. Multicast of the link and
// addresses of others are not.
func (c Cluster) between(p Packet) bool {
	return c.MACs[p.Destination] || c.contains(p.Flow.Destination.Addr())
}

func (c Cluster) contains(addr netip.Addr) bool {
	for _, prefix := range c.Prefixes {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

func (c Cluster) nodeToNode(p Packet) bool {
	return c.Nodes[p.Flow.Source.Addr()] && c.Nodes[p.Flow.Destination.Addr()]
}

// neighbourDiscovery accepts ICMPv6 133–137 with the hop limit that proves it was not forwarded
// (RFC 4861 §6, §7).
func (p Packet) neighbourDiscovery() bool {
	return p.Flow.Protocol == protoICMP6 && p.ICMPType >= 133 && p.ICMPType <= 137 && p.HopLimit == 255 && !p.Fragment.IsPiece()
}

// refused accepts an ICMP error (RFC 792, RFC 4443 §3) of a router to a node about a packet that is itself accepted
// above. What it quotes of a later fragment has been on the wire, and was judged there.
func (c Cluster) refused(p Packet) bool {
	if p.Quoted == nil || !c.Routers[p.Flow.Source.Addr()] || !c.Nodes[p.Flow.Destination.Addr()] {
		return false
	}
	kind := c.Judge(*p.Quoted)
	return kind == WireGuard || kind == Piece
}

const devicePorts = 4

func (c Cluster) isWireGuardPort(port uint16) bool { return port-c.Port < devicePorts }

// wireGuard accepts the four messages of the protocol by type, reserved bytes and length
// (wireguard.com/protocol). The port alone is not enough: anybody can send from it.
func (c Cluster) wireGuard(p Packet) bool {
	if p.Flow.Protocol != protoUDP || !c.isWireGuardPort(p.Flow.Source.Port()) || !c.isWireGuardPort(p.Flow.Destination.Port()) || len(p.Payload) < 4 {
		return false
	}
	switch binary.LittleEndian.Uint32(p.Payload) {
	case 1: // handshake initiation
		return p.UDPLength == 148
	case 2: // handshake response
		return p.UDPLength == 92
	case 3: // cookie
		return p.UDPLength == 64
	case 4:
		return transport(p)
	}
	return false
}

const (
	// transportOverhead is the header of a transport message, 16 bytes, and the tag of its data, 16 bytes.
	transportOverhead = 32
	// paddedBelow is the smallest MTU at which an engine ends its padding, in bytes: IPv6 works with no less.
	paddedBelow = 1280
	// mostMessages is more than a session can carry: it lives for 180 seconds (Reject-After-Time in §6.1 of the
	// WireGuard paper), and this is 6,000 a microsecond.
	mostMessages = 1 << 40
)

// transport accepts data: type and reserved bytes (4 bytes, seen already), the receiver's index (4), a counter
// (8), the encrypted packet, a tag (16).
//
// The packet is padded to a multiple of 16, but never beyond the MTU that it was sent with; of one that is larger,
// what is over a multiple of the MTU is padded (calculate_skb_padding in the kernel's send.c, calculatePaddingSize in
// wireguard-go). So a length says something below the smallest MTU only. What is asked of every message is
// the counter, which begins at 0 with every session and has no time to get far: with type and reserved bytes it
// fixes 7 of the first 16 bytes, 6 of them to zero, which no text has, whatever its length.
func transport(p Packet) bool {
	data := p.UDPLength - transportOverhead
	return data >= 0 && (data%16 == 0 || data >= paddedBelow) &&
		len(p.Payload) >= 16 && binary.LittleEndian.Uint64(p.Payload[8:]) < mostMessages
}
