package model

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"warren/internal/plan"
)

const (
	tcpLen         = 20
	tcpChecksum    = 16 // offset
	tcpSYN         = 0x02
	optionEnd      = 0
	optionNOP      = 1
	optionMSS      = 2
	optionMSSBytes = 4
)

// LargestMSS returns the TCP segment size in bytes that a tunnel for packets of that many bytes allows.
// Options are not taken off: the sender does that itself (RFC 6691).
func LargestMSS(innerMTU uint16, ipv6 bool) uint16 {
	if ipv6 {
		return innerMTU - ipv6Len - tcpLen
	}
	return innerMTU - ipv4Len - tcpLen
}

// tcpHeader returns the TCP header with its options, as far as they are in the frame; nil when there is
// none or it must not be changed. The IP header is at ipOffset of the frame.
func (p Packet) tcpHeader(frame []byte, ipOffset int) []byte {
	if p.Protocol != protocolTCP || p.l4Offset == 0 || p.authenticated {
		return nil
	}
	tcp := frame[ipOffset+p.l4Offset:]
	if len(tcp) < tcpLen || tcp[12]>>4 < tcpLen/4 {
		return nil
	}
	return tcp[:min(int(tcp[12]>>4)*4, len(tcp))]
}

// TunnelMTU returns the largest packet in bytes that the tunnel carries whole to or from a peer, nil if it is
// unknown; 0: nobody said.
func (c Config) TunnelMTU(peer *plan.Entry) uint16 {
	switch {
	case peer == nil || peer.MTU == 0:
		return c.InnerMTU
	case c.InnerMTU == 0:
		return peer.MTU
	}
	return min(peer.MTU, c.InnerMTU)
}

// clampMSS returns the frame with a SYN's segment size lowered to what fits into a tunnel for packets of that
// many bytes.
func (p Packet) clampMSS(frame []byte, ipOffset int, mtu uint16) []byte {
	if tcp := p.tcpHeader(frame, ipOffset); mtu == 0 || tcp == nil || tcp[13]&tcpSYN == 0 {
		return frame
	}
	frame = slices.Clone(frame)
	tcp := p.tcpHeader(frame, ipOffset)
	limit := LargestMSS(mtu, p.IPv6)
	for at := tcpLen; at+optionMSSBytes <= len(tcp) && tcp[at] != optionEnd; {
		if tcp[at] == optionNOP {
			at++
			continue
		}
		length := int(tcp[at+1])
		if length < 2 {
			break
		}
		if tcp[at] == optionMSS && length == optionMSSBytes && binary.BigEndian.Uint16(tcp[at+2:]) > limit {
			lowerMSS(tcp, at+2, limit)
		}
		at += length
	}
	return frame
}

// lowerMSS writes the segment size at that offset and corrects the checksum (RFC 1624).
func lowerMSS(tcp []byte, at int, size uint16) {
	before, after := binary.BigEndian.Uint16(tcp[at:]), size
	if at%2 == 1 { // its bytes belong to two words of the checksum
		before, after = bits.ReverseBytes16(before), bits.ReverseBytes16(after)
	}
	sum := uint32(^binary.BigEndian.Uint16(tcp[tcpChecksum:])) + uint32(^before) + uint32(after)
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(tcp[tcpChecksum:], ^uint16(sum))
	binary.BigEndian.PutUint16(tcp[at:], size)
}

// fit returns what becomes of a packet of that size, in bytes with its IP header, that takes a tunnel for packets
// up to the limit. Smaller segments do not change the frame, which the kernel cuts later.
func fit(size int, segments Segments, limit int) Reason {
	switch {
	case limit == 0, size <= limit:
		return ReasonRedirected
	case segments.Size == 0:
		return ReasonOversize
	case segments.Headers+segments.Size <= limit:
		return ReasonRedirected
	case segments.TCP && segments.Headers < limit:
		return ReasonRecut
	}
	return ReasonOversize
}
