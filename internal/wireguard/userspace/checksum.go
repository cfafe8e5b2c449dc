package userspace

import "encoding/binary"

const (
	protocolUDP     = 17
	ipv4ProtocolAt  = 9
	ipv4FragmentAt  = 6
	ipv6NextHeader  = 6
	ipv6AddressesAt = 8
	udpPortAt       = 2
	udpChecksumAt   = 6
	vxlanHeader     = 8 + 14 // and the Ethernet header of the frame inside, which ends with its type
	etherTypeIPv6   = 0x86dd
)

// avoidZeroChecksum makes a checksum of 0 ffff in a UDP datagram over IPv6, if it is what the bytes add up to; also
// inside VXLAN, where the kernel leaves the inner checksum. Tunnels that send without a checksum (RFC 6935) are left alone.
//
// The kernel leaves checksums to the device, and the TUN device of wireguard-go writes what the sum is. That is wrong for
// one value: where it is 0, UDP writes ffff, since 0 says that there is no checksum (RFC 768), and over IPv6 the
// receiver drops such a datagram (RFC 8200 §8.1). One of 65,536 was lost so, however often it was sent again.
func avoidZeroChecksum(packet []byte) {
	datagram, ok := udpDatagram(packet)
	if !ok {
		return
	}
	if inner, ok := insideVXLAN(datagram); ok {
		avoidZeroChecksum(inner)
	}
	if packet[0]>>4 != 6 || binary.BigEndian.Uint16(datagram[udpChecksumAt:]) != 0 {
		return
	}
	sum := uint64(protocolUDP) + uint64(len(datagram)) + sumWords(packet[ipv6AddressesAt:ipv6Header]) + sumWords(datagram)
	if sum%0xffff == 0 { // never all zero: the protocol is in it
		binary.BigEndian.PutUint16(datagram[udpChecksumAt:], 0xffff)
	}
}

// udpDatagram returns the UDP datagram of a whole IP packet without extension headers: the kernel computes by itself the
// checksums of datagrams that it cuts.
func udpDatagram(packet []byte) ([]byte, bool) {
	if len(packet) == 0 {
		return nil, false
	}
	header, isUDP := 0, false
	switch packet[0] >> 4 {
	case 4:
		header = int(packet[0]&15) * 4
		isUDP = len(packet) >= ipv4Header && packet[ipv4ProtocolAt] == protocolUDP && binary.BigEndian.Uint16(packet[ipv4FragmentAt:])&0x3fff == 0
	case 6:
		header = ipv6Header
		isUDP = len(packet) >= ipv6Header && packet[ipv6NextHeader] == protocolUDP
	}
	if !isUDP || len(packet) < header+udpHeader {
		return nil, false
	}
	return packet[header:], true
}

// insideVXLAN returns the IPv6 packet in a VXLAN datagram (RFC 7348 §5) to the port that IANA or Linux gave it.
func insideVXLAN(datagram []byte) ([]byte, bool) {
	port := binary.BigEndian.Uint16(datagram[udpPortAt:])
	if (port != 4789 && port != 8472) || len(datagram) < udpHeader+vxlanHeader {
		return nil, false
	}
	frame := datagram[udpHeader:]
	return frame[vxlanHeader:], binary.BigEndian.Uint16(frame[vxlanHeader-2:]) == etherTypeIPv6
}

// sumWords adds up 16-bit words, an odd byte at the end as the first of one (RFC 1071). The sum modulo ffff is what a checksum
// is made of.
func sumWords(b []byte) (sum uint64) {
	for ; len(b) > 1; b = b[2:] {
		sum += uint64(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint64(b[0]) << 8
	}
	return sum
}
