package userspace

import "encoding/binary"

// Read implements tun.Device: packets as the local machine sends them, each with a checksum that is right.
//
// The kernel leaves checksums to the device, and the TUN device of wireguard-go writes what the sum is. That is wrong for
// one value: where it is 0, UDP writes ffff, since 0 says that there is no checksum (RFC 768), and over IPv6 the
// receiver drops such a datagram (RFC 8200 §8.1). One of 65,536 was lost so, however often it was sent again.
func (l *link) Read(buffers [][]byte, sizes []int, offset int) (int, error) {
	n, err := l.Device.Read(buffers, sizes, offset)
	for i := range n {
		avoidZeroChecksum(buffers[i][offset : offset+sizes[i]])
	}
	return n, err
}

const (
	protocolUDP     = 17
	udpChecksumAt   = ipv6Header + 6
	ipv6NextHeader  = 6
	ipv6AddressesAt = 8
)

// avoidZeroChecksum makes a checksum of 0 ffff in a UDP datagram over IPv6, if it is what the bytes add up to. Tunnels
// that send without a checksum (RFC 6935) are left alone.
func avoidZeroChecksum(packet []byte) {
	if len(packet) < ipv6Header+udpHeader || packet[0]>>4 != 6 || packet[ipv6NextHeader] != protocolUDP ||
		binary.BigEndian.Uint16(packet[udpChecksumAt:]) != 0 {
		return
	}
	datagram := packet[ipv6Header:]
	sum := uint64(protocolUDP) + uint64(len(datagram)) + sumWords(packet[ipv6AddressesAt:ipv6Header]) + sumWords(datagram)
	if sum%0xffff == 0 { // never all zero: the protocol is in it
		binary.BigEndian.PutUint16(packet[udpChecksumAt:], 0xffff)
	}
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
