package model

import (
	"encoding/binary"
	"net/netip"
)

// Fragment says which part of its datagram a packet is.
type Fragment uint8

// The parts. An IPv6 packet with a fragment header is a fragment even if nothing was cut (RFC 6946).
const (
	Whole         Fragment = 0
	FirstFragment Fragment = 1
	LaterFragment Fragment = 2
)

// Meta is what the kernel knows about a packet besides its bytes.
type Meta struct {
	// Mark of the packet.
	Mark uint32
	// L3 says that the device has no link layer header: the frame starts with the IP header.
	L3 bool
	// AsideTag says that the kernel keeps a VLAN tag beside the frame (hardware acceleration).
	AsideTag bool
	// Segments are what the kernel will cut the packet into (GSO); the zero value stays whole.
	Segments Segments
	// Datagrams are the datagrams whose first fragment was WireGuard's own. ToNetdev adds to it. A nil
	// map remembers nothing.
	Datagrams map[Datagram]bool
	// Ifindex is the index of the device that the program is attached to.
	Ifindex uint32
	// Flows are the connections that silent peers began in clear. FromNetdev adds to it, FromTunnel takes from it.
	// A nil map remembers nothing.
	Flows map[Flow]bool
	// Told are the senders that were told a moment ago that a packet is too large. ToNetdev adds to it. A
	// nil map remembers nothing.
	Told map[Pair]bool
}

// Segments are the packets that a large one stands for until the device.
type Segments struct {
	// Size is the payload of each in bytes; 0: the packet is no such one.
	Size int
	// Headers are the bytes in front of it, from the IP header.
	Headers int
	// TCP, also inside an overlay, may be cut anywhere. Datagrams may not.
	TCP bool
}

// Datagram is what the fragments of a datagram have in common.
type Datagram struct {
	Src, Dst netip.Addr
	// ID is the identification: 16 bits in IPv4, 32 in IPv6.
	ID uint32
}

// Pair is who sends and who receives.
type Pair struct{ Src, Dst netip.Addr }

// Packet is what the decision sees of a packet.
type Packet struct {
	// Src and Dst are unmapped.
	Src, Dst netip.Addr
	Mark     uint32
	IPv6     bool
	// Protocol is what follows the IPv6 extension headers that are looked behind.
	Protocol uint8
	// HopLimit or TTL.
	HopLimit uint8
	Fragment Fragment
	// ID of the datagram; 0 unless the packet is a fragment.
	ID uint32
	// ICMPType is the type of an ICMP or ICMPv6 message; 0 unless the packet shows one.
	ICMPType uint8
	// DontFragment: IPv4 with that flag, and all IPv6, which routers never cut.
	DontFragment bool
	// WireGuard says that this is UDP and its payload begins as WireGuard messages do.
	WireGuard bool
	// SrcPort and DstPort are those of TCP, UDP and SCTP; 0 unless the packet shows them.
	SrcPort, DstPort uint16
	// SYN says that this is TCP that begins a connection.
	SYN bool
	// OwnDatagram says of a later fragment that its datagram began as an own WireGuard packet.
	OwnDatagram bool
	// Exempt says that an exemption is about this packet.
	Exempt bool
	// Server says that this is whole TCP from or to the port of a server that nodes need to begin.
	Server bool
	// InClear says that the packet is of a connection that a silent peer began in clear.
	InClear bool

	tags     int  // VLAN tags, in the frame and aside
	ipOffset int  // where the IP header starts in the frame
	l4Offset int  // of the layer 4 header from the IP header, at most the end of the packet; 0 for later fragments
	showsTCP bool // a TCP header, but for its options
	// authenticated: behind an AH, whose sum covers layer 4.
	authenticated bool
}

// Limits of what is looked behind.
const (
	maxTags       = 2
	maxExtensions = 8
)

const (
	macLen        = 12
	ethernetLen   = 14
	ipv4Len       = 20
	ipv6Len       = 40
	etherTypeIPv4 = 0x0800
	etherTypeIPv6 = 0x86dd
	etherType8021 = 0x8100
	etherTypeQinQ = 0x88a8
)

const (
	protocolHopByHop = 0
	protocolICMP     = 1
	protocolTCP      = 6
	protocolUDP      = 17
	protocolRouting  = 43
	protocolFragment = 44
	protocolAH       = 51
	protocolICMPv6   = 58
	protocolDestOpts = 60
	protocolSCTP     = 132
	protocolMobility = 135
	protocolHIP      = 139
	protocolShim6    = 140
)

// Parse reads a frame. A reason other than 0 says why nobody can tell where the packet goes, and
// then the packet says nothing.
func Parse(frame []byte, meta Meta) (Packet, Reason) {
	packet := Packet{Mark: meta.Mark}
	etherType, reason := packet.parseLink(frame, meta)
	if reason != 0 {
		return Packet{}, reason
	}
	switch ip := frame[packet.ipOffset:]; etherType {
	case etherTypeIPv4:
		reason = packet.parseIPv4(ip)
	case etherTypeIPv6:
		reason = packet.parseIPv6(ip)
	default:
		reason = ReasonNotIP
	}
	if reason != 0 {
		return Packet{}, reason
	}
	return packet, 0
}

func (p *Packet) parseLink(frame []byte, meta Meta) (etherType uint16, reason Reason) {
	if meta.L3 {
		return etherTypeOf(frame)
	}
	if meta.AsideTag {
		p.tags++
	}
	for end := ethernetLen; end <= len(frame); end += 4 {
		switch etherType = binary.BigEndian.Uint16(frame[end-2:]); {
		case etherType != etherType8021 && etherType != etherTypeQinQ:
			p.ipOffset = end
			return etherType, 0
		case end == ethernetLen+4*maxTags:
			return 0, ReasonVLANTooDeep
		}
		p.tags++
	}
	return 0, ReasonMalformed
}

// etherTypeOf tells by the version field, since nothing else travels with the packet.
func etherTypeOf(packet []byte) (uint16, Reason) {
	if len(packet) == 0 {
		return 0, ReasonMalformed
	}
	switch packet[0] >> 4 {
	case 4:
		return etherTypeIPv4, 0
	case 6:
		return etherTypeIPv6, 0
	}
	return 0, 0
}

func (p *Packet) parseIPv4(ip []byte) Reason {
	if len(ip) < ipv4Len {
		return ReasonMalformed
	}
	headerLen := int(ip[0]&0xf) * 4
	if ip[0]>>4 != 4 || headerLen < ipv4Len || headerLen > len(ip) {
		return ReasonMalformed
	}
	p.Src = netip.AddrFrom4([4]byte(ip[12:16]))
	p.Dst = netip.AddrFrom4([4]byte(ip[16:20]))
	p.HopLimit, p.Protocol = ip[8], ip[9]
	p.DontFragment = ip[6]&0x40 != 0
	moreFragments, offset := ip[6]&0x20 != 0, binary.BigEndian.Uint16(ip[6:])&0x1fff
	switch {
	case offset != 0:
		p.Fragment = LaterFragment
	case moreFragments:
		p.Fragment = FirstFragment
	}
	if p.Fragment != Whole {
		p.ID = uint32(binary.BigEndian.Uint16(ip[4:]))
	}
	p.parseTransport(ip, headerLen)
	return 0
}

func (p *Packet) parseIPv6(ip []byte) Reason {
	if len(ip) < ipv6Len || ip[0]>>4 != 6 {
		return ReasonMalformed
	}
	p.IPv6, p.DontFragment = true, true
	p.Src = netip.AddrFrom16([16]byte(ip[8:24])).Unmap()
	p.Dst = netip.AddrFrom16([16]byte(ip[24:40])).Unmap()
	p.Protocol, p.HopLimit = ip[6], ip[7]
	p.parseTransport(ip, len(ip)-len(p.skipExtensions(ip[ipv6Len:])))
	return 0
}

// skipExtensions returns what follows the extension headers: as many as there are up to the limit,
// fewer when one is cut short.
func (p *Packet) skipExtensions(rest []byte) []byte {
	for range maxExtensions {
		length := p.extensionLen(rest)
		if length == 0 {
			break
		}
		if p.Protocol == protocolFragment {
			p.Fragment, p.ID = FirstFragment, binary.BigEndian.Uint32(rest[4:])
			if binary.BigEndian.Uint16(rest[2:])&^7 != 0 {
				p.Fragment = LaterFragment
			}
		}
		p.authenticated = p.authenticated || p.Protocol == protocolAH
		p.Protocol = rest[0]
		rest = rest[min(length, len(rest)):]
		if p.Fragment == LaterFragment {
			break // what follows is the middle of something
		}
	}
	return rest
}

// extensionLen returns the length of the extension header at the start of rest, which may be more
// than there is; 0 when there is none or it does not show its length.
func (p *Packet) extensionLen(rest []byte) int {
	switch p.Protocol {
	case protocolFragment:
		if len(rest) < 8 {
			return 0
		}
		return 8
	case protocolHopByHop, protocolRouting, protocolDestOpts, protocolMobility, protocolHIP, protocolShim6:
		if len(rest) < 2 {
			return 0
		}
		return (int(rest[1]) + 1) * 8 // RFC 8200
	case protocolAH:
		if len(rest) < 2 {
			return 0
		}
		return (int(rest[1]) + 2) * 4 // RFC 4302
	}
	return 0
}

func (p *Packet) parseTransport(ip []byte, offset int) {
	if p.Fragment == LaterFragment {
		return
	}
	p.l4Offset = offset
	l4 := ip[offset:]
	if p.isICMP() && len(l4) > 0 {
		p.ICMPType = l4[0]
	}
	if p.hasPorts() && len(l4) >= 4 {
		p.SrcPort, p.DstPort = binary.BigEndian.Uint16(l4), binary.BigEndian.Uint16(l4[2:])
	}
	p.showsTCP = p.Protocol == protocolTCP && len(l4) >= 20
	p.SYN = p.showsTCP && l4[13]&0x17 == 0x02 // and not ACK, RST or FIN
	p.WireGuard = p.Protocol == protocolUDP && len(l4) >= 12 &&
		l4[8] >= 1 && l4[8] <= 4 && l4[9] == 0 && l4[10] == 0 && l4[11] == 0
}

func (p *Packet) hasPorts() bool {
	return p.Protocol == protocolTCP || p.Protocol == protocolUDP || p.Protocol == protocolSCTP
}

func (p *Packet) isICMP() bool {
	if p.IPv6 {
		return p.Protocol == protocolICMPv6
	}
	return p.Protocol == protocolICMP
}
