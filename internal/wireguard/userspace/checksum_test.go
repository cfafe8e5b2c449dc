package userspace

import (
	"encoding/binary"
	"net/netip"
	"testing"
)

// datagram6 is a UDP datagram over IPv6 whose bytes, without the checksum, add up to the sum given; the checksum is 0.
func datagram6(sum uint16, length int) []byte {
	packet := []byte{0x60, 0, 0, 0, 0, 0, protocolUDP, 64}
	binary.BigEndian.PutUint16(packet[4:], uint16(udpHeader+length))
	packet = append(packet, netip.MustParseAddr("fd00:42:1::11").AsSlice()...)
	packet = append(packet, netip.MustParseAddr("fd00:42:2::11").AsSlice()...)
	packet = append(packet, 0x9c, 0x41, 0x12, 0xa9, packet[4], packet[5], 0, 0)
	packet = append(packet, make([]byte, length)...)
	packet[len(packet)-1] = 7 // the last byte counts, also of an odd length
	rest := uint64(protocolUDP) + uint64(udpHeader+length) + sumWords(packet[ipv6AddressesAt:])
	binary.BigEndian.PutUint16(packet[ipv6Header+udpHeader:], uint16((uint64(sum)+0xffff-rest%0xffff)%0xffff))
	return packet
}

func TestAvoidZeroChecksum(t *testing.T) {
	change := func(packet []byte, at int, value byte) []byte { packet[at] = value; return packet }
	tests := []struct {
		name   string
		packet []byte
		want   uint16
	}{
		{name: "adds up to ffff, so the checksum is 0", packet: datagram6(0xffff, 100), want: 0xffff},
		{name: "of an odd length", packet: datagram6(0xffff, 101), want: 0xffff},
		{name: "sent without a checksum", packet: datagram6(0xfffe, 100)},
		{name: "another checksum", packet: change(datagram6(0xffff, 100), udpChecksumAt+1, 1), want: 1},
		{name: "another protocol", packet: change(datagram6(0xffff, 100), ipv6NextHeader, 6)},
		{name: "another version", packet: change(datagram6(0xffff, 100), 0, 0x45)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			avoidZeroChecksum(test.packet)
			if got := binary.BigEndian.Uint16(test.packet[udpChecksumAt:]); got != test.want {
				t.Errorf("checksum %04x, want %04x", got, test.want)
			}
		})
	}
	for length := range ipv6Header + udpHeader {
		avoidZeroChecksum(datagram6(0xffff, 100)[:length]) // cut short: nothing happens
	}
}
