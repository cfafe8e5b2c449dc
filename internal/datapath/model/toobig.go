package model

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"warren/internal/plan"
)

// Sizes in bytes that every host takes (RFC 791, RFC 8200): nobody is told less, and no error is larger
// (RFC 1812 4.3.2.3, RFC 4443 2.4 c).
const (
	smallestMTU4 = 576
	smallestMTU6 = 1280
)

const icmpLen = 8

// tellable says whether the sender of a packet that the tunnel does not carry whole may be told so. It never
// is a socket of this node's: the size that it learns is that of a destination, and the encrypted
// packets have the same one.
func (p Packet) tellable(src *plan.Entry, mtu uint16, oversize Oversize) bool {
	return oversize != OversizeFragment && isLocal(src) && !isNode(src) &&
		p.DontFragment && p.Fragment != LaterFragment && !p.isICMPError() && !isGroup(p.Dst) &&
		mtu >= p.smallestMTU()
}

func (p Packet) smallestMTU() uint16 {
	if p.IPv6 {
		return smallestMTU6
	}
	return smallestMTU4
}

// isICMPError: no error is the answer to one (RFC 1122 3.2.2, RFC 4443 2.4 e).
func (p Packet) isICMPError() bool {
	switch {
	case !p.isICMP():
		return false
	case p.IPv6:
		return p.ICMPType < 128 || p.ICMPType == 137
	}
	return slices.Contains([]uint8{3, 4, 5, 11, 12}, p.ICMPType)
}

// isGroup: nobody answers what went to many.
func isGroup(addr netip.Addr) bool {
	return addr.IsMulticast() || addr == netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// mayTell limits the rate of errors by sender and receiver (RFC 1812 4.3.2.8, RFC 4443 2.4 f).
func (m Meta) mayTell(p Packet) bool {
	pair := Pair{p.Src, p.Dst}
	if m.Told[pair] {
		return false
	}
	if m.Told != nil {
		m.Told[pair] = true
	}
	return true
}

// tell makes the packet the error that a router in front of a narrower link would send, and hands it back to
// the device that the packet was about to leave by.
func (p Packet) tell(result *Result, meta Meta, config Config, mtu uint16) {
	result.Reason = ReasonTooBigTold
	if config.Oversize == OversizeICMP {
		result.Reason = ReasonTooBigRefused
	}
	packet := result.Frame[p.plainOffset():]
	underlay := Underlay{L3: meta.L3}
	if !meta.L3 {
		copy(underlay.MAC[:], result.Frame[len(underlay.MAC):]) // back to whoever sent it
	}
	tooBig := tooBig4
	if p.IPv6 {
		tooBig = tooBig6
	}
	result.Verdict, result.Ifindex = HandBack, meta.Ifindex
	result.Mark = meta.Mark&^config.MarkMask | config.Mark
	result.Frame = underlay.dress(tooBig(packet, mtu), p.IPv6)
}

// tooBig4 returns the ICMP message "fragmentation needed and DF set" (RFC 792, RFC 1191).
func tooBig4(packet []byte, mtu uint16) []byte {
	message := append(binary.BigEndian.AppendUint16([]byte{3, 4, 0, 0, 0, 0}, mtu), packet[:smallestMTU4-ipv4Len-icmpLen]...)
	binary.BigEndian.PutUint16(message[2:], internetSum(message))
	// Precedence as RFC 1812 4.3.2.5 wants it; "don't fragment".
	header := binary.BigEndian.AppendUint16([]byte{0x45, 0xc0}, uint16(ipv4Len+len(message)))
	header = append(header, 0, 0, 0x40, 0, 64, protocolICMP, 0, 0)
	header = slices.Concat(header, packet[16:20], packet[12:16])
	binary.BigEndian.PutUint16(header[10:], internetSum(header))
	return append(header, message...)
}

// tooBig6 returns the ICMPv6 message "packet too big" (RFC 4443 3.2).
func tooBig6(packet []byte, mtu uint16) []byte {
	message := append(binary.BigEndian.AppendUint16([]byte{2, 0, 0, 0, 0, 0}, mtu), packet[:smallestMTU6-ipv6Len-icmpLen]...)
	src, dst, length := packet[24:40], packet[8:24], binary.BigEndian.AppendUint16(nil, uint16(len(message)))
	pseudo := slices.Concat(src, dst, []byte{0, 0}, length, []byte{0, 0, 0, protocolICMPv6})
	binary.BigEndian.PutUint16(message[2:], internetSum(append(pseudo, message...)))
	return slices.Concat([]byte{0x60, 0, 0, 0}, length, []byte{protocolICMPv6, 64}, src, dst, message)
}

// internetSum is the checksum of RFC 1071 over an even number of bytes.
func internetSum(data []byte) uint16 {
	var sum uint32
	for pair := range slices.Chunk(data, 2) {
		sum += uint32(binary.BigEndian.Uint16(pair))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
