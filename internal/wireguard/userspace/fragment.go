package userspace

import "encoding/binary"

// Flags beside the offset of an IPv4 fragment (RFC 791 §3.1), which counts in units of 8 bytes.
const (
	dontFragment   = 0x4000
	moreFragments  = 0x2000
	fragmentOffset = 0x1fff
	ipv4LengthAt   = 2
	ipv4ChecksumAt = 10
)

// recut cuts the IPv4 fragment in the first buffer once more if it is larger than the tunnel carries whole, as any router
// may, and returns how many packets there are then. The pieces are of one size, so that they fit a narrower path, too.
//
// Otherwise the encrypted packet would be cut. Linux throws away what it has of a datagram when more than 64 fragments from
// one address come between two of its own (ip_frag_too_far in net/ipv4/ip_fragment.c), and between two nodes those of
// encrypted packets count with those inside: a tunnel process that had to wait for a processor lost the datagram.
func recut(buffers [][]byte, sizes []int, offset, mtu int) int {
	packet := buffers[0][offset : offset+sizes[0]]
	if len(packet) <= mtu || !mayRecut(packet) {
		return 1
	}
	header, payload := packet[:ipv4Header], packet[ipv4Header:]
	room := (mtu - ipv4Header) &^ 7
	n := ceil(len(payload), room)
	if n > len(buffers) {
		return 1
	}
	size := ceil(ceil(len(payload), n), 8) * 8
	field := binary.BigEndian.Uint16(header[ipv4FragmentAt:])
	for i := n - 1; i >= 0; i-- { // the first, which is in its place already, ends as the source of the others
		first, last := i*size, min((i+1)*size, len(payload))
		piece := buffers[i][offset : offset+ipv4Header+last-first]
		copy(piece, header)
		copy(piece[ipv4Header:], payload[first:last])
		at := field + uint16(first/8)
		if i < n-1 {
			at |= moreFragments
		}
		setFragment(piece, at)
		sizes[i] = len(piece)
	}
	return n
}

func ceil(a, b int) int { return (a + b - 1) / b }

// mayRecut: an IPv4 fragment without options, which only some pieces would have to repeat, that routers may cut.
func mayRecut(packet []byte) bool {
	if packet[0] != 0x45 || int(binary.BigEndian.Uint16(packet[ipv4LengthAt:])) != len(packet) {
		return false
	}
	field := binary.BigEndian.Uint16(packet[ipv4FragmentAt:])
	return field&dontFragment == 0 && field&(moreFragments|fragmentOffset) != 0
}

// setFragment makes the header of an IPv4 packet right for its length and its place in the datagram.
func setFragment(packet []byte, field uint16) {
	binary.BigEndian.PutUint16(packet[ipv4LengthAt:], uint16(len(packet)))
	binary.BigEndian.PutUint16(packet[ipv4FragmentAt:], field)
	binary.BigEndian.PutUint16(packet[ipv4ChecksumAt:], 0)
	binary.BigEndian.PutUint16(packet[ipv4ChecksumAt:], ^uint16(sumWords(packet[:ipv4Header])%0xffff))
}
