package userspace

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// fragment4 is an IPv4 packet of so many bytes; the field has its flags and, in units of 8 bytes, its offset.
func fragment4(length int, field uint16) []byte {
	packet := make([]byte, length)
	random := rand.New(rand.NewPCG(uint64(length), uint64(field)))
	for i := range packet {
		packet[i] = byte(random.Uint32())
	}
	packet[0] = 0x45
	setFragment(packet, field)
	return packet
}

// recutAll returns the packets that become of one.
func recutAll(packet []byte, mtu int) [][]byte {
	const offset, most = 16, 128
	buffers, sizes := make([][]byte, most), make([]int, most)
	for i := range buffers {
		buffers[i] = make([]byte, 1<<16)
	}
	sizes[0] = copy(buffers[0][offset:], packet)
	var all [][]byte
	for i := range recut(buffers, sizes, offset, mtu) {
		all = append(all, buffers[i][offset:offset+sizes[i]])
	}
	return all
}

func TestRecut(t *testing.T) {
	change := func(packet []byte, at int, value byte) []byte { packet[at] = value; return packet }
	tests := []struct {
		name   string
		packet []byte
		mtu    int
		want   []int // lengths of the pieces
	}{
		{name: "fits", packet: fragment4(1440, moreFragments), mtu: 1440, want: []int{1440}},
		{name: "the first", packet: fragment4(1500, moreFragments), mtu: 1440, want: []int{764, 756}},
		{name: "one in between", packet: fragment4(1500, moreFragments|185), mtu: 1440, want: []int{764, 756}},
		{name: "the last, of an odd length", packet: fragment4(1443, 370), mtu: 1440, want: []int{732, 731}},
		{name: "of a jumbo frame", packet: fragment4(8996, moreFragments), mtu: 1440, want: []int{1308, 1308, 1308, 1308, 1308, 1308, 1268}},
		{name: "not a fragment", packet: fragment4(1500, 0), mtu: 1440, want: []int{1500}},
		{name: "a fragment that may not be cut", packet: fragment4(1500, dontFragment|moreFragments), mtu: 1440, want: []int{1500}},
		{name: "with options", packet: change(fragment4(1500, moreFragments), 0, 0x46), mtu: 1440, want: []int{1500}},
		{name: "of another length than it says", packet: change(fragment4(1500, moreFragments), ipv4LengthAt, 1), mtu: 1440, want: []int{1500}},
		{name: "more pieces than there are buffers", packet: fragment4(1500, moreFragments), mtu: 28, want: []int{1500}},
		{name: "IPv6", packet: change(fragment4(1500, moreFragments), 0, 0x60), mtu: 1440, want: []int{1500}},
		{name: "nothing", mtu: 1440, want: []int{0}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got []int
			for _, piece := range recutAll(test.packet, test.mtu) {
				got = append(got, len(piece))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("lengths (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRecutRestored: every piece fits and is a packet of its own, and all together are what they were cut from.
func TestRecutRestored(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mtu := rapid.IntRange(576, 9000).Draw(t, "mtu")
		offset := rapid.IntRange(1, 1000).Draw(t, "offset")
		field := uint16(offset) | moreFragments*uint16(rapid.IntRange(0, 1).Draw(t, "more"))
		packet := fragment4(rapid.IntRange(ipv4Header+1, 25_000).Draw(t, "length"), field)
		restored := append([]byte(nil), packet[:ipv4Header]...)
		pieces := recutAll(packet, mtu)
		for i, piece := range pieces {
			if len(piece) > mtu || sumWords(piece[:ipv4Header])%0xffff != 0 || int(binary.BigEndian.Uint16(piece[ipv4LengthAt:])) != len(piece) {
				t.Fatalf("piece %d of %d bytes does not fit, or its header is wrong: % x", i, len(piece), piece[:ipv4Header])
			}
			at := field + uint16((len(restored)-ipv4Header)/8)
			if i < len(pieces)-1 {
				at |= moreFragments
			}
			if got := binary.BigEndian.Uint16(piece[ipv4FragmentAt:]); got != at {
				t.Fatalf("piece %d has flags and offset %04x, want %04x", i, got, at)
			}
			restored = append(restored, piece[ipv4Header:]...)
		}
		if !bytes.Equal(packet[ipv4Header:], restored[ipv4Header:]) {
			t.Fatal("the pieces are not what was cut")
		}
	})
}
