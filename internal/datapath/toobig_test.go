package datapath

import (
	"net/netip"
	"slices"
	"strings"

	"warren/internal/datapath/model"
)

const dontFragment = 0x4000

// from4 and from6 are packets from a pod to one of a peer whose tunnel carries 1400 bytes.
func from4(h ipv4, payload string) []byte {
	h.src, h.dst, h.fragment = "10.244.1.5", "10.244.7.5", dontFragment|h.fragment
	return h.wrap([]byte(payload))
}

func from6(next uint8, payload string) []byte {
	return ipv6{src: "fd00:244:1::5", dst: "fd00:244:7::5", next: next}.wrap([]byte(payload))
}

// narrow4 and narrow6 are such datagrams of that many bytes.
func narrow4(size int) []byte {
	return from4(ipv4{protocol: protoUDP}, string(udp(1, 2, strings.Repeat("x", size-28))))
}

func narrow6(size int) []byte {
	return from6(protoUDP, string(udp(1, 2, strings.Repeat("x", size-48))))
}

// tooBig4 and tooBig6 are what a pod is told about its packet.
func tooBig4(mtu uint16, packet []byte) []byte {
	message := slices.Concat([]byte{3, 4, 0, 0, 0, 0}, u16(mtu), packet[:548])
	copy(message[2:], u16(checksum(message)))
	return ipv4{src: textOf(packet[16:20]), dst: textOf(packet[12:16]), protocol: 1, fragment: dontFragment, service: 0xc0}.wrap(message)
}

func tooBig6(mtu uint16, packet []byte) []byte {
	message := slices.Concat([]byte{2, 0, 0, 0, 0, 0}, u16(mtu), packet[:1232])
	src, dst := packet[24:40], packet[8:24]
	copy(message[2:], u16(checksum(slices.Concat(src, dst, u16(0), u16(uint16(len(message))), u16(0), u16(protoICMP), message))))
	return ipv6{src: textOf(src), dst: textOf(dst), next: protoICMP}.wrap(message)
}

func textOf(address []byte) string {
	addr, _ := netip.AddrFromSlice(address)
	return addr.String()
}

// answer is the frame of such an error, addressed to whoever sent the packet.
func answer(etherType uint16, packet []byte) []byte {
	return slices.Concat(frameMACs[6:], []byte("\x02warrn"), u16(etherType), packet)
}

// tells is for packets whose sender is told, in that frame.
func tells(reason model.Reason, frame []byte) func(Input) model.Result {
	return func(in Input) model.Result {
		return model.Result{Verdict: model.HandBack, Reason: reason, Mark: in.Mark | 0x10, Frame: frame, Ifindex: loopback}
	}
}

func refuse(c *model.Config)       { c.Oversize = model.OversizeICMP }
func fragmentOnly(c *model.Config) { c.Oversize = model.OversizeFragment }

// tooBigSituations: which pods are told, and what.
func tooBigSituations() []situation {
	return slices.Concat(told(), notTold(), []situation{
		egress("too big: not sent", v4(narrow4(1401)), tells(model.ReasonTooBigRefused, answer(typeIPv4, tooBig4(1400, narrow4(1401))))).when(refuse),
		egress("too big: not sent, IPv6", v6(narrow6(1401)), tells(model.ReasonTooBigRefused, answer(typeIPv6, tooBig6(1400, narrow6(1401))))).when(refuse),
		egress("too big: without link layer", raw(narrow4(1401)), tells(model.ReasonTooBigTold, tooBig4(1400, narrow4(1401)))),
		egress("too big: without link layer, IPv6", raw(narrow6(1401)), tells(model.ReasonTooBigTold, tooBig6(1400, narrow6(1401)))),
		egress("size: as large as the peer's tunnel", v4(narrow4(1400)), redirect),
		egress("size: as large as the peer's tunnel, IPv6", v6(narrow6(1400)), redirect),
	})
}

func told() []situation {
	told4 := func(name string, packet []byte, mtu uint16) situation {
		return egress("too big: "+name, v4(packet), tells(model.ReasonTooBigTold, answer(typeIPv4, tooBig4(mtu, packet))))
	}
	told6 := func(name string, packet []byte, mtu uint16) situation {
		return egress("too big: "+name, v6(packet), tells(model.ReasonTooBigTold, answer(typeIPv6, tooBig6(mtu, packet))))
	}
	in := func(frame []byte, mark uint32, s situation) situation {
		s.in = Input{Frame: frame, Mark: mark}
		s.want.Mark = mark | 0x10
		return s
	}
	large := strings.Repeat("x", 1500)
	toWide := ipv4{src: "10.244.1.5", dst: "10.244.2.5", protocol: protoUDP, fragment: dontFragment}.wrap(udp(1, 2, large))
	return []situation{
		told4("IPv4", narrow4(1401), 1400),
		told6("IPv6", narrow6(1401), 1400),
		told4("many times as large", narrow4(3500), 1400),
		in(ethernet(typeIPv4, narrow4(1401)), 0x4000, told4("marks of others stay", narrow4(1401), 1400)),
		in(tagged(typeIPv4, narrow4(1401), typeVLAN), 0, told4("behind a VLAN tag", narrow4(1401), 1400)),
		in(tagged(typeIPv6, narrow6(1401), typeQinQ, typeVLAN), 0, told6("behind two VLAN tags, IPv6", narrow6(1401), 1400)),
		told4("IPv4 options", from4(ipv4{protocol: protoTCP, options: make([]byte, 40)}, large), 1400),
		told6("IPv6 extension headers", from6(60, string(extension(protoUDP, 30, []byte(large)))), 1400),
		told4("ICMP that is no error", from4(ipv4{protocol: 1}, "\x08"+large), 1400),
		told6("ICMPv6 that is no error", from6(protoICMP, "\x80"+large), 1400),
		told4("first fragment", from4(ipv4{protocol: protoUDP, fragment: flagMore}, large), 1400),
		told6("first fragment, IPv6", from6(44, string(fragment6(protoUDP, 0, true, 7, []byte(large)))), 1400),
		told4("strict mode", narrow4(1401), 1400).when(strict),
		told4("the tunnels carry less", narrow4(1301), 1300).when(innerMTU(1300)),
		told4("the tunnels carry more", narrow4(1401), 1400).when(innerMTU(1440)),
		told4("a peer without a size of its own", toWide, 1440).when(innerMTU(1440)),
		told4("the least that anybody is told", narrow4(577), 576).when(innerMTU(576)),
		told6("the least that anybody is told, IPv6", narrow6(1281), 1280).when(innerMTU(1280)),
		told4("somebody else was told before", narrow4(1401), 1400).after(v6(narrow6(1401)), v4(toWide)).when(innerMTU(1440)),
	}
}

func notTold() []situation {
	silent := func(name string, in Input) situation {
		return egress("too big, nobody is told: "+name, in, oversize)
	}
	large := strings.Repeat("x", 1500)
	to := func(src, dst string, fragment uint16) Input {
		return v4(ipv4{src: src, dst: dst, protocol: protoUDP, fragment: fragment}.wrap([]byte(large)))
	}
	return []situation{
		silent("by configuration", v4(narrow4(1401))).when(fragmentOnly),
		silent("by configuration, IPv6", v6(narrow6(1401))).when(fragmentOnly),
		silent("may be fragmented", to("10.244.1.5", "10.244.7.5", 0)).when(refuse),
		silent("a socket of this node", to("10.0.0.1", "10.244.7.5", dontFragment)).when(refuse),
		silent("a socket of this node, IPv6", v6(ipv6{src: "fd00::1", dst: "fd00:244:7::5", next: protoUDP}.wrap([]byte(large)))).when(refuse),
		silent("told a moment ago", v4(narrow4(1402))).after(v4(narrow4(1401))),
		silent("told a moment ago, and not to be sent", v6(narrow6(1402))).after(v6(narrow6(1401))).when(refuse),
		silent("later fragment", to("10.244.1.5", "10.244.7.5", dontFragment|7)).when(refuse),
		silent("later fragment, IPv6", v6(from6(44, string(fragment6(protoUDP, 1448, true, 7, []byte(large)))))).when(refuse),
		silent("destination unreachable", v4(from4(ipv4{protocol: 1}, "\x03"+large))),
		silent("source quench", v4(from4(ipv4{protocol: 1}, "\x04"+large))),
		silent("redirect", v4(from4(ipv4{protocol: 1}, "\x05"+large))),
		silent("time exceeded", v4(from4(ipv4{protocol: 1}, "\x0b"+large))),
		silent("parameter problem", v4(from4(ipv4{protocol: 1}, "\x0c"+large))),
		silent("any error of ICMPv6", v6(from6(protoICMP, "\x7f"+large))),
		silent("redirect, IPv6", v6(from6(protoICMP, "\x89"+large))),
		silent("multicast", to("10.244.1.5", "239.1.0.1", dontFragment)).when(innerMTU(1400)),
		silent("multicast, IPv6", v6(ipv6{src: "fd00:244:1::5", dst: "ff05::1", next: protoUDP}.wrap([]byte(large)))).when(innerMTU(1400)),
		silent("less than every host takes", v4(narrow4(577))).when(innerMTU(575)),
		silent("less than every host takes, IPv6", v6(narrow6(1281))).when(innerMTU(1279)),
		egress("too big, nobody is told: observed only", v4(narrow4(1401)), passes(model.ReasonWouldRedirect)).when(observe),
	}
}
