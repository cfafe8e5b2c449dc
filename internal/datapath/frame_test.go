package datapath

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
)

// The builders below wrap a payload in one header each, so that a packet reads from the outside in:
//
//	ethernet(typeIPv4, ipv4{src: "10.0.0.1", dst: "10.0.0.2", protocol: 17}.wrap(udp(1, 2, "hello")))

const (
	typeIPv4  = 0x0800
	typeIPv6  = 0x86dd
	typeARP   = 0x0806
	typeVLAN  = 0x8100
	typeQinQ  = 0x88a8
	protoUDP  = 17
	protoTCP  = 6
	protoICMP = 58 // in IPv6
	flagMore  = 0x2000
)

var frameMACs = []byte{0x02, 0, 0, 0, 0, 0x02, 0x02, 0, 0, 0, 0, 0x01}

func ethernet(etherType uint16, payload []byte) []byte {
	return slices.Concat(frameMACs, u16(etherType), payload)
}

// tagged is ethernet with VLAN tags of these types, outermost first.
func tagged(etherType uint16, payload []byte, types ...uint16) []byte {
	frame := slices.Clone(frameMACs)
	for i, tag := range types {
		frame = slices.Concat(frame, u16(tag), u16(uint16(100+i)))
	}
	return slices.Concat(frame, u16(etherType), payload)
}

type ipv4 struct {
	src, dst string
	protocol uint8
	fragment uint16 // flags and offset in units of 8 bytes
	id       uint16
	options  []byte // multiple of 4
	service  uint8  // type of service
}

func (h ipv4) wrap(payload []byte) []byte {
	headerLen := 20 + len(h.options)
	header := []byte{0x40 | byte(headerLen/4), h.service}
	header = slices.Concat(header, u16(uint16(headerLen+len(payload))), u16(h.id), u16(h.fragment),
		[]byte{64, h.protocol, 0, 0}, addressBytes(h.src), addressBytes(h.dst), h.options)
	binary.BigEndian.PutUint16(header[10:], checksum(header))
	return append(header, payload...)
}

type ipv6 struct {
	src, dst string
	next     uint8
	hopLimit uint8 // 0: 64
}

func (h ipv6) wrap(payload []byte) []byte {
	if h.hopLimit == 0 {
		h.hopLimit = 64
	}
	return slices.Concat([]byte{0x60, 0, 0, 0}, u16(uint16(len(payload))), []byte{h.next, h.hopLimit},
		addressBytes(h.src), addressBytes(h.dst), payload)
}

// extension is an IPv6 extension header of 8 bytes times 1+words.
func extension(next uint8, words int, payload []byte) []byte {
	return slices.Concat([]byte{next, byte(words)}, make([]byte, 6+8*words), payload)
}

// authentication is an AH of 4 bytes times 2+words.
func authentication(next uint8, words int, payload []byte) []byte {
	return slices.Concat([]byte{next, byte(words)}, make([]byte, 6+4*words), payload)
}

// fragment6 is an IPv6 fragment header; offset in bytes.
func fragment6(next uint8, offset uint16, more bool, id uint32, payload []byte) []byte {
	if more {
		offset |= 1
	}
	return slices.Concat([]byte{next, 0}, u16(offset), binary.BigEndian.AppendUint32(nil, id), payload)
}

func udp(src, dst uint16, payload string) []byte {
	return slices.Concat(u16(src), u16(dst), u16(uint16(8+len(payload))), u16(0), []byte(payload))
}

func tcp(src, dst uint16) []byte {
	return slices.Concat(u16(src), u16(dst), make([]byte, 8), []byte{0x50, 0x02}, make([]byte, 6))
}

// segment is a TCP header with these flags and options, filled up with zeros to words.
func segment(flags uint8, options []byte) []byte {
	options = slices.Concat(options, make([]byte, -len(options)&3))
	header := slices.Concat(u16(40000), u16(80), make([]byte, 8), []byte{byte(tcpLen+len(options)) / 4 << 4, flags}, make([]byte, 6))
	return append(header, options...)
}

const tcpLen = 20

func mss(size uint16) []byte { return append([]byte{2, 4}, u16(size)...) }

// summed fills in the checksum of a TCP segment between two addresses.
func summed(src, dst string, tcp []byte) []byte {
	tcp = slices.Clone(tcp)
	copy(tcp[16:], []byte{0, 0})
	pseudo := slices.Concat(addressBytes(src), addressBytes(dst), u16(0), u16(uint16(len(tcp))), u16(protoTCP))
	binary.BigEndian.PutUint16(tcp[16:], checksum(append(pseudo, tcp...)))
	return tcp
}

func icmp6(kind uint8) []byte { return append([]byte{kind}, make([]byte, 23)...) }

// transportMessage is how a WireGuard data message begins.
const transportMessage = "\x04\x00\x00\x00 receiver, counter, ciphertext"

func u16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }

func addressBytes(text string) []byte { return netip.MustParseAddr(text).AsSlice() }

func checksum(data []byte) uint16 {
	var sum uint32
	for pair := range slices.Chunk(data, 2) {
		sum += uint32(pair[0]) << 8
		if len(pair) == 2 {
			sum += uint32(pair[1])
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func cut(frame []byte, n int) []byte { return bytes.Clone(frame[:n]) }
