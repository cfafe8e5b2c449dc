package wire

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Numbers of protocols (IANA) that Decode understands.
const (
	etherIPv4  = 0x0800
	etherARP   = 0x0806
	etherVLAN  = 0x8100
	etherQinQ  = 0x88a8
	etherIPv6  = 0x86dd
	protoICMP  = 1
	protoTCP   = 6
	protoUDP   = 17
	protoICMP6 = 58
	vxlanPort  = 8472
)

// MAC is an Ethernet address.
type MAC [6]byte

// Flow is what makes packets of one conversation alike, in one direction.
type Flow struct {
	Protocol    uint8
	Source      netip.AddrPort
	Destination netip.AddrPort
}

// Reverse returns the flow of the answers.
func (f Flow) Reverse() Flow { return Flow{f.Protocol, f.Destination, f.Source} }

// Fragment identifies the pieces of one IP datagram. The zero value is a whole datagram.
type Fragment struct {
	ID     uint32
	Offset int // in bytes; only the piece at 0 has ports
	More   bool
}

// IsPiece reports whether the packet is not a whole datagram.
func (f Fragment) IsPiece() bool { return f.Offset > 0 || f.More }

// Packet is one frame, read as far as it can be. What cannot be read stays zero: such a frame is
// judged by what is known of it, which is never in its favour.
type Packet struct {
	Source, Destination MAC
	EtherType           uint16 // behind VLAN tags
	// Flow of the IP packet. The port of ICMP echo is its identifier, on both sides.
	Flow     Flow
	HopLimit uint8
	// ICMPType is the type of ICMP or ICMPv6.
	ICMPType uint8
	Fragment Fragment
	// UDPLength is the length of the datagram's payload as its header says, also in a first fragment.
	UDPLength int
	// Payload is what is behind the UDP header in this frame.
	Payload []byte
	// Inner is the frame inside VXLAN.
	Inner *Packet
	// Quoted is the beginning of the packet that an ICMP error is about, as if in a frame of its own.
	Quoted *Packet
}

// Decode reads an Ethernet frame. It accepts any bytes.
func Decode(frame []byte) Packet {
	var p Packet
	if len(frame) < 14 {
		return p
	}
	copy(p.Destination[:], frame)
	copy(p.Source[:], frame[6:])
	p.EtherType = binary.BigEndian.Uint16(frame[12:])
	rest := frame[14:]
	for (p.EtherType == etherVLAN || p.EtherType == etherQinQ) && len(rest) >= 4 {
		p.EtherType, rest = binary.BigEndian.Uint16(rest[2:]), rest[4:]
	}
	p.network(rest)
	return p
}

func (p *Packet) network(b []byte) {
	switch p.EtherType {
	case etherIPv4:
		p.ipv4(b)
	case etherIPv6:
		p.ipv6(b)
	}
}

func (p *Packet) ipv4(b []byte) {
	if len(b) < 20 || b[0]>>4 != 4 {
		return
	}
	header, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	if header < 20 || len(b) < header {
		return
	}
	offset := binary.BigEndian.Uint16(b[6:])
	p.Fragment = Fragment{ID: uint32(binary.BigEndian.Uint16(b[4:])), Offset: int(offset&0x1fff) * 8, More: offset&0x2000 != 0}
	p.HopLimit = b[8]
	p.addresses(netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20])))
	// Short frames are padded; what is behind the packet is not part of it.
	p.transport(b[9], b[header:max(header, min(len(b), total))])
}

func (p *Packet) ipv6(b []byte) {
	if len(b) < 40 || b[0]>>4 != 6 {
		return
	}
	end := min(len(b), 40+int(binary.BigEndian.Uint16(b[4:])))
	p.HopLimit = b[7]
	p.addresses(netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40])))
	p.extensions(b[6], b[40:end])
}

// extensions walks the extension headers (RFC 8200 §4).
func (p *Packet) extensions(next uint8, b []byte) {
	const hopByHop, routing, fragment, authentication, options = 0, 43, 44, 51, 60
	for {
		var length int
		switch {
		case next == fragment && len(b) >= 8:
			offset := binary.BigEndian.Uint16(b[2:])
			p.Fragment = Fragment{ID: binary.BigEndian.Uint32(b[4:]), Offset: int(offset &^ 7), More: offset&1 != 0}
			length = 8
		case (next == hopByHop || next == routing || next == options) && len(b) >= 8:
			length = 8 + int(b[1])*8
		case next == authentication && len(b) >= 8:
			length = 8 + int(b[1])*4
		default:
			p.transport(next, b)
			return
		}
		if length > len(b) {
			return
		}
		next, b = b[0], b[length:]
	}
}

func (p *Packet) addresses(source, destination netip.Addr) {
	p.Flow.Source, p.Flow.Destination = netip.AddrPortFrom(source, 0), netip.AddrPortFrom(destination, 0)
}

func (p *Packet) transport(protocol uint8, b []byte) {
	p.Flow.Protocol = protocol
	if p.Fragment.Offset > 0 {
		return
	}
	switch {
	case protocol == protoUDP && len(b) >= 8:
		p.ports(binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]))
		p.UDPLength = int(binary.BigEndian.Uint16(b[4:])) - 8
		p.Payload = b[8:]
		p.vxlan()
	case protocol == protoTCP && len(b) >= 20:
		p.ports(binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]))
	case (protocol == protoICMP || protocol == protoICMP6) && len(b) >= 8:
		p.ICMPType = b[0]
		if p.echo() {
			identifier := binary.BigEndian.Uint16(b[4:])
			p.ports(identifier, identifier)
		}
		if p.icmpError() {
			p.Quoted = &Packet{Source: p.Source, Destination: p.Destination, EtherType: p.EtherType}
			p.Quoted.network(b[8:])
		}
	}
}

// echo reports whether the ICMP message is an echo request or its reply.
func (p *Packet) echo() bool {
	if p.Flow.Protocol == protoICMP {
		return p.ICMPType == 0 || p.ICMPType == 8
	}
	return p.ICMPType == 128 || p.ICMPType == 129
}

// icmpError reports whether the ICMP message is about a packet that did not get through: unreachable, which "fragmentation
// needed" is one of, or too big.
func (p *Packet) icmpError() bool {
	if p.Flow.Protocol == protoICMP {
		return p.ICMPType == 3
	}
	return p.ICMPType == 1 || p.ICMPType == 2
}

func (p *Packet) ports(source, destination uint16) {
	p.Flow.Source = netip.AddrPortFrom(p.Flow.Source.Addr(), source)
	p.Flow.Destination = netip.AddrPortFrom(p.Flow.Destination.Addr(), destination)
}

// vxlan reads the frame behind a VXLAN header (RFC 7348 §5).
func (p *Packet) vxlan() {
	if p.Flow.Destination.Port() == vxlanPort && len(p.Payload) > 8 && p.Payload[0]&8 != 0 {
		inner := Decode(p.Payload[8:])
		p.Inner = &inner
	}
}

// String prints "udp 10.0.0.1:5 > 10.0.0.2:6", without ports where there are none.
func (f Flow) String() string {
	name, ok := map[uint8]string{protoICMP: "icmp", protoTCP: "tcp", protoUDP: "udp", protoICMP6: "icmp6"}[f.Protocol]
	if !ok {
		name = fmt.Sprintf("protocol %d", f.Protocol)
	}
	return fmt.Sprintf("%s %s > %s", name, end(f.Source), end(f.Destination))
}

func end(a netip.AddrPort) string {
	if a.Port() == 0 {
		return a.Addr().String()
	}
	return a.String()
}
