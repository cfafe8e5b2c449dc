package userspace

import (
	"bytes"
	"encoding/binary"
	"fmt"
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
		{name: "another checksum", packet: change(datagram6(0xffff, 100), ipv6Header+udpChecksumAt+1, 1), want: 1},
		{name: "another protocol", packet: change(datagram6(0xffff, 100), ipv6NextHeader, 6)},
		{name: "another version", packet: change(datagram6(0xffff, 100), 0, 0x45)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			checksum := func(packet []byte) uint16 {
				return binary.BigEndian.Uint16(packet[len(packet)-len(test.packet)+ipv6Header+udpChecksumAt:])
			}
			for place, outer := range map[string][]byte{"": nil, " inside VXLAN": vxlan(8472), " inside VXLAN, IANA's port": vxlan(4789)} {
				packet := append(outer, test.packet...)
				avoidZeroChecksum(packet)
				if got := checksum(packet); got != test.want {
					t.Errorf("checksum%s %04x, want %04x", place, got, test.want)
				}
			}
		})
	}
}

// vxlan is what precedes an IPv6 packet inside VXLAN over IPv4.
func vxlan(port uint16) []byte {
	outer := make([]byte, ipv4Header+udpHeader+vxlanHeader)
	outer[0], outer[ipv4ProtocolAt] = 0x45, protocolUDP
	binary.BigEndian.PutUint16(outer[ipv4Header+udpPortAt:], port)
	binary.BigEndian.PutUint16(outer[len(outer)-2:], etherTypeIPv6)
	return outer
}

// TestAvoidZeroChecksumLeavesOthersAlone: what is no such datagram, or not whole, stays as it is.
func TestAvoidZeroChecksumLeavesOthersAlone(t *testing.T) {
	whole := append(vxlan(8472), datagram6(0xffff, 100)...)
	change := func(at int, value byte) []byte { packet := bytes.Clone(whole); packet[at] = value; return packet }
	packets := map[string][]byte{
		"a later fragment":         change(ipv4FragmentAt+1, 1),
		"a first fragment":         change(ipv4FragmentAt, 0x20),
		"another port":             change(ipv4Header+udpPortAt, 1),
		"something else inside":    change(len(vxlan(0))-1, 0),
		"another protocol outside": change(ipv4ProtocolAt, 6),
	}
	for length := range len(vxlan(0)) + ipv6Header + udpHeader {
		packets[fmt.Sprintf("%d bytes", length)] = bytes.Clone(whole[:length])
	}
	for length := range ipv6Header + udpHeader {
		packets[fmt.Sprintf("%d bytes without VXLAN", length)] = datagram6(0xffff, 100)[:length]
	}
	for name, packet := range packets {
		before := bytes.Clone(packet)
		avoidZeroChecksum(packet)
		if !bytes.Equal(before, packet) {
			t.Errorf("%s: changed", name)
		}
	}
}
