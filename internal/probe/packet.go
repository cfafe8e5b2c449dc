package probe

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
)

const (
	ipv6Len  = 40
	udpLen   = 8
	protoUDP = 17
	// hopLimit 1 keeps a stray probe on its link.
	hopLimit = 1
)

// MinSize is the length in bytes of the smallest probe, and MaxSize of the largest.
const (
	MinSize = ipv6Len + udpLen + payloadLen
	MaxSize = math.MaxUint16
)

// HeadSize is how many bytes of a packet Parse needs at most, this version and later ones.
const HeadSize = 128

// Packet returns a whole IPv6 packet with the message as a UDP datagram from and to port, filled up with zeroes
// to size bytes (MinSize … MaxSize). src and dst are what Address returns.
func Packet(src, dst netip.Addr, port uint16, m Message, size int) ([]byte, error) {
	if size < MinSize || size > MaxSize {
		return nil, fmt.Errorf("probe of %d bytes: %d to %d are possible", size, MinSize, MaxSize)
	}
	if !Prefix.Contains(src) || !Prefix.Contains(dst) {
		return nil, fmt.Errorf("probe from %s to %s: addresses are those of %s", src, dst, Prefix)
	}
	packet := make([]byte, size)
	packet[0] = 6 << 4
	binary.BigEndian.PutUint16(packet[4:], uint16(size-ipv6Len))
	packet[6], packet[7] = protoUDP, hopLimit
	copy(packet[8:], src.AsSlice())
	copy(packet[24:], dst.AsSlice())
	datagram := packet[ipv6Len:]
	binary.BigEndian.PutUint16(datagram, port)
	binary.BigEndian.PutUint16(datagram[2:], port)
	binary.BigEndian.PutUint16(datagram[4:], uint16(len(datagram)))
	m.put(datagram[udpLen:])
	sum := ^fold(sumOf(packet[:MinSize])) // the rest is zero
	if sum == 0 {
		sum = math.MaxUint16 // zero means "no checksum", which IPv6 does not have (RFC 8200 §8.1)
	}
	binary.BigEndian.PutUint16(datagram[6:], sum)
	return packet, nil
}

// Parse reads a probe that came out of the tunnel. packet may end after HeadSize bytes; length is how long it was.
// The checksum is looked at when the packet is whole; that it is authentic is WireGuard's word in any case.
//
// Error: ErrKind for a probe of a later version that has no meaning here; any other for what is no probe.
func Parse(packet []byte, length int) (src, dst netip.Addr, m Message, err error) {
	if err := checkHeaders(packet, length); err != nil {
		return src, dst, m, fmt.Errorf("parse probe: %w", err)
	}
	src, dst = netip.AddrFrom16([16]byte(packet[8:])), netip.AddrFrom16([16]byte(packet[24:]))
	if !Prefix.Contains(src) || !Prefix.Contains(dst) {
		return src, dst, m, fmt.Errorf("parse probe: from %s to %s, not of %s", src, dst, Prefix)
	}
	if m, err = parseMessage(packet[ipv6Len+udpLen:]); err != nil {
		return src, dst, m, fmt.Errorf("parse probe from %s: %w", src, err)
	}
	return src, dst, m, nil
}

func checkHeaders(packet []byte, length int) error {
	switch {
	case len(packet) < MinSize || len(packet) > length:
		return fmt.Errorf("%d bytes of %d", len(packet), length)
	case packet[0]>>4 != 6 || packet[6] != protoUDP:
		return fmt.Errorf("not UDP over IPv6")
	case int(binary.BigEndian.Uint16(packet[4:])) != length-ipv6Len || int(binary.BigEndian.Uint16(packet[ipv6Len+4:])) != length-ipv6Len:
		return fmt.Errorf("its headers tell another length than %d", length)
	case len(packet) == length && fold(sumOf(packet)) != math.MaxUint16:
		return fmt.Errorf("wrong checksum")
	}
	return nil
}

// sumOf adds what the UDP checksum of an IPv6 packet without extension headers covers (RFC 8200 §8.1):
// addresses, datagram, its length and its protocol.
func sumOf(packet []byte) uint64 {
	sum := uint64(binary.BigEndian.Uint16(packet[4:])) + protoUDP
	rest := packet[8:]
	for ; len(rest) >= 4; rest = rest[4:] {
		sum += uint64(binary.BigEndian.Uint32(rest))
	}
	if len(rest) >= 2 {
		sum += uint64(binary.BigEndian.Uint16(rest))
		rest = rest[2:]
	}
	if len(rest) == 1 {
		sum += uint64(rest[0]) << 8
	}
	return sum
}

// fold brings a sum down to 16 bits, carries added (RFC 1071 §2).
func fold(sum uint64) uint16 {
	for sum > math.MaxUint16 {
		sum = sum>>16 + sum&math.MaxUint16
	}
	return uint16(sum)
}
