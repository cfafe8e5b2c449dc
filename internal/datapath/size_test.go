package datapath

import (
	"slices"
	"strings"

	"warren/internal/datapath/model"
)

func innerMTU(mtu uint16) func(*model.Config) { return func(c *model.Config) { c.InnerMTU = mtu } }

const (
	flagsSYN    = 0x02
	flagsSYNACK = 0x12
	flagsACK    = 0x10
)

// Options as operating systems send them, around a segment size.
func linuxOptions(size uint16) []byte {
	return slices.Concat(mss(size), []byte{4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7})
}

// pod4 and pod6 wrap a TCP segment, with a right checksum, from a pod to one of a peer. back4 and back6
// are the other way.
func pod4(tcp []byte) []byte  { return tcp4("10.244.1.5", "10.244.2.5", nil, tcp) }
func pod6(tcp []byte) []byte  { return tcp6("fd00:244:1::5", "fd00:244:2::5", tcp) }
func back4(tcp []byte) []byte { return tcp4("10.244.2.5", "10.244.1.5", nil, tcp) }
func back6(tcp []byte) []byte { return tcp6("fd00:244:2::5", "fd00:244:1::5", tcp) }

func tcp4(src, dst string, options, tcp []byte) []byte {
	return ipv4{src: src, dst: dst, protocol: protoTCP, options: options}.wrap(summed(src, dst, tcp))
}

func tcp6(src, dst string, tcp []byte) []byte {
	return ipv6{src: src, dst: dst, next: protoTCP}.wrap(summed(src, dst, tcp))
}

// behind6 is pod6 behind the headers that wrap adds, of which the first is of type next.
func behind6(next uint8, tcp []byte, wrap func([]byte) []byte) []byte {
	const src, dst = "fd00:244:1::5", "fd00:244:2::5"
	return ipv6{src: src, dst: dst, next: next}.wrap(wrap(summed(src, dst, tcp)))
}

// udpOf is a packet of that many bytes.
func udpOf(size int) []byte {
	return udpTo("10.244.1.5", "10.244.2.5", 1, 2, strings.Repeat("x", size-28))
}

func oversize(in Input) model.Result {
	result := redirect(in)
	result.Reason = model.ReasonOversize
	return result
}

// sizeSituations: what becomes of the segment size that is offered, and of large packets, through a tunnel of 1440 bytes.
func sizeSituations() []situation {
	syn := func(size uint16) []byte { return segment(flagsSYN, linuxOptions(size)) }
	odd := func(size uint16) []byte {
		return segment(flagsSYN, slices.Concat([]byte{1}, mss(size), []byte{3, 3, 7}))
	}
	options := make([]byte, 12)
	hops := func(tcp []byte) []byte { return extension(60, 1, extension(protoTCP, 0, tcp)) }
	atomic := func(tcp []byte) []byte { return fragment6(protoTCP, 0, false, 7, tcp) }
	header := func(tcp []byte) []byte { return authentication(protoTCP, 4, tcp) }
	clamped := func(name string, in, want []byte) situation {
		frame := v4
		if in[0]>>4 == 6 {
			frame = v6
		}
		return egress("segment size: "+name, frame(in), redirectedAs(frame(want).Frame)).when(innerMTU(1440))
	}
	same := func(name string, in []byte) situation { return clamped(name, in, in) }
	decrypted := func(name string, in []byte, want model.Result) situation {
		return situation{name: name, program: fromTunnel, in: Input{Frame: in}, want: want}
	}
	return []situation{
		clamped("SYN", pod4(syn(1460)), pod4(syn(1400))),
		clamped("SYN, IPv6", pod6(syn(1440)), pod6(syn(1380))),
		clamped("SYN-ACK", pod4(segment(flagsSYNACK, mss(8960))), pod4(segment(flagsSYNACK, mss(1400)))),
		clamped("one byte too large", pod4(syn(1401)), pod4(syn(1400))),
		clamped("behind a NOP, at an odd place", pod4(odd(1460)), pod4(odd(1400))),
		clamped("at an odd place, IPv6", pod6(odd(1440)), pod6(odd(1380))),
		clamped("the last option of the largest header", pod4(segment(flagsSYN, append(slices.Repeat([]byte{1}, 36), mss(1460)...))),
			pod4(segment(flagsSYN, append(slices.Repeat([]byte{1}, 36), mss(1400)...)))),
		clamped("said twice", pod4(segment(flagsSYN, append(mss(1460), mss(1460)...))), pod4(segment(flagsSYN, append(mss(1400), mss(1400)...)))),
		clamped("behind IPv4 options", tcp4("10.0.0.1", "10.0.0.2", options, syn(1460)), tcp4("10.0.0.1", "10.0.0.2", options, syn(1400))),
		clamped("behind IPv6 extension headers", behind6(0, syn(1440), hops), behind6(0, syn(1380), hops)),
		clamped("behind a fragment header with nothing cut", behind6(44, syn(1440), atomic), behind6(44, syn(1380), atomic)),
		same("one that fits", pod4(syn(1400))),
		same("never raised", pod4(syn(536))),
		same("not said", pod4(segment(flagsSYN, []byte{4, 2}))),
		same("no options", pod6(segment(flagsSYN, nil))),
		same("not a SYN", pod4(segment(flagsACK, mss(1460)))),
		same("behind the end of the options", pod4(segment(flagsSYN, append([]byte{0}, mss(1460)...)))),
		same("behind an option without length", pod4(segment(flagsSYN, append([]byte{8, 0}, mss(1460)...)))),
		same("of another length", pod4(segment(flagsSYN, []byte{2, 3, 0xff, 1}))),
		same("larger than the header", pod4(segment(flagsSYN, []byte{1, 1, 2, 4}))),
		same("behind AH, whose sum covers it", behind6(51, syn(1440), header)),
		same("UDP with the same bytes", ipv4{src: "10.0.0.1", dst: "10.0.0.2", protocol: protoUDP}.wrap(syn(1460))),
		same("later fragment with the same bytes", ipv4{src: "10.0.0.1", dst: "10.0.0.2", protocol: protoTCP, fragment: 5}.wrap(syn(1460))),
		egress("size: as large as the tunnel", v4(udpOf(1440)), redirect).when(innerMTU(1440)),
		egress("size: one byte more", v4(udpOf(1441)), oversize).when(innerMTU(1440)),
		egress("size: one byte more behind a tag", Input{Frame: tagged(typeIPv4, udpOf(1441), typeVLAN)}, func(in Input) model.Result {
			result := oversize(in)
			result.Frame = ethernet(typeIPv4, udpOf(1441))
			return result
		}).when(innerMTU(1440)),
		egress("size: without link layer", raw(udpOf(1441)), oversize).when(innerMTU(1440)),
		egress("size: without link layer, as large as the tunnel", raw(udpOf(1440)), redirect).when(innerMTU(1440)),
		egress("size: nobody said what fits", v4(udpOf(1500)), redirect),
		egress("segment size: nobody said what fits", v4(pod4(syn(1460))), redirect),
		egress("segment size: the peer's tunnel carries less", v4(tcp4("10.244.1.5", "10.244.7.5", nil, syn(1460))),
			redirectedAs(v4(tcp4("10.244.1.5", "10.244.7.5", nil, syn(1360))).Frame)).when(innerMTU(1440)),
		egress("segment size: only the peer's is known", v4(tcp4("10.244.1.5", "10.244.7.5", nil, syn(1460))),
			redirectedAs(v4(tcp4("10.244.1.5", "10.244.7.5", nil, syn(1360))).Frame)),
		egress("segment size: the peer's tunnel carries more", v4(tcp4("10.244.1.5", "10.244.7.5", nil, syn(1460))),
			redirectedAs(v4(tcp4("10.244.1.5", "10.244.7.5", nil, syn(1260))).Frame)).when(innerMTU(1300)),
		egress("segment size: without link layer", raw(pod4(syn(1460))), redirectedAs(pod4(syn(1400)))).when(innerMTU(1440)),
		egress("segment size: behind VLAN tags", Input{Frame: tagged(typeIPv4, pod4(syn(1460)), typeQinQ, typeVLAN)},
			redirectedAs(ethernet(typeIPv4, pod4(syn(1400))))).when(innerMTU(1440)),
		egress("segment size: not for the tunnel", v4(tcp4("10.0.0.1", "192.0.2.1", nil, syn(1460))), passes(model.ReasonNotCluster)).when(innerMTU(1440)),
		egress("segment size: observed only", v4(pod4(syn(1460))), passes(model.ReasonWouldRedirect)).when(all(innerMTU(1440), observe)),
		decrypted("segment size: of a peer whose tunnel carries more", back4(syn(8888)), handBack(handedBack(0x22, typeIPv4, back4(syn(1400))), 0x10, 2)).
			when(innerMTU(1440)),
		decrypted("segment size: of a peer, IPv6", back6(odd(8868)), handBack(handedBack(0x22, typeIPv6, back6(odd(1380))), 0x10, 2)).when(innerMTU(1440)),
		decrypted("segment size: of a peer whose tunnel carries less", tcp4("10.244.7.5", "10.244.1.5", nil, syn(1400)),
			handBack(handedBack(0x22, typeIPv4, tcp4("10.244.7.5", "10.244.1.5", nil, syn(1360))), 0x10, 2)).when(innerMTU(1440)),
		decrypted("segment size: of a peer whose tunnel carries less, left on the device", tcp4("10.244.7.5", "10.244.1.5", nil, syn(1400)),
			model.Result{Reason: model.ReasonLeftOnDevice, Frame: tcp4("10.244.7.5", "10.244.1.5", nil, syn(1360))}).when(all(innerMTU(1440), ingressDevice)),
		decrypted("segment size: of a peer, left on the device", back4(syn(1460)),
			model.Result{Reason: model.ReasonLeftOnDevice, Frame: back4(syn(1400))}).when(all(innerMTU(1440), ingressDevice)),
	}
}
