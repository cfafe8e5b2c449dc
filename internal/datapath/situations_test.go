package datapath

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"warren/internal/cluster"
	"warren/internal/datapath/model"
)

// situation is one packet, and what becomes of it. The same packet goes through the model and
// through the loaded program.
type situation struct {
	name    string
	program model.Program
	// change changes the configuration (permissive, tunnel 9, primary underlay 2).
	change func(*model.Config)
	// before are packets that came earlier.
	before []earlier
	in     Input
	want   model.Result
}

// earlier is a packet that went through a program before.
type earlier struct {
	program model.Program
	in      Input
}

const (
	toNetdev   = model.ProgramToNetdev
	fromNetdev = model.ProgramFromNetdev
	fromTunnel = model.ProgramFromTunnel
)

func observe(c *model.Config)        { c.Mode = cluster.ModeObserve }
func strict(c *model.Config)         { c.Mode = cluster.ModeStrict }
func withoutTunnel(c *model.Config)  { c.Tunnels[0] = 0 }
func ingressDevice(c *model.Config)  { c.Ingress = model.IngressDevice }
func withSlot2(c *model.Config)      { c.Tunnels[2] = 11 }
func withoutPrimary(c *model.Config) { c.PrimaryUnderlay = 0 }

func all(changes ...func(*model.Config)) func(*model.Config) {
	return func(c *model.Config) {
		for _, change := range changes {
			change(c)
		}
	}
}

// Packets that several situations are about.
var (
	podToPod   = ipv4{src: "10.244.1.5", dst: "10.244.2.5", protocol: protoTCP}.wrap(tcp(40000, 80))
	hostToHost = ipv4{src: "10.0.0.1", dst: "10.0.0.2", protocol: protoTCP}.wrap(tcp(40000, 22))
	podToPod6  = ipv6{src: "fd00:244:1::5", dst: "fd00:244:2::5", next: protoTCP}.wrap(tcp(40000, 80))
	reply      = ipv4{src: "10.244.2.5", dst: "10.244.1.5", protocol: protoTCP}.wrap(tcp(80, 40000))
	reply6     = ipv6{src: "fd00:244:2::5", dst: "fd00:244:1::5", next: protoTCP}.wrap(tcp(80, 40000))
	encrypted  = ipv4{src: "10.0.0.1", dst: "10.0.0.2", protocol: protoUDP}.wrap(udp(51880, 51880, transportMessage))
	encrypted6 = ipv6{src: "fd00::1", dst: "fd00::2", next: protoUDP}.wrap(udp(51880, 51880, transportMessage))
	arp        = ethernet(typeARP, make([]byte, 28))
)

// Packets to a peer that is reached by the device in slot 2, and what that device sends.
var (
	hostToSlot2   = ipv4{src: "10.0.0.1", dst: "10.0.0.10", protocol: protoTCP}.wrap(tcp(40000, 22))
	hostToSlot2v6 = ipv6{src: "fd00::1", dst: "fd00::10", next: protoTCP}.wrap(tcp(40000, 22))
	ofSlot2       = udpTo("10.0.0.1", "10.0.0.2", 51882, 51881, transportMessage)
)

// probing is what Warren sends through the tunnel to measure.
var probing = ipv6{src: "fe80:7761:7272:656e::5", dst: "fe80:7761:7272:656e:ffff:ffff:ffff:ffff", next: protoUDP}.wrap(udp(1, 2, "are you there?"))

// fragments of a WireGuard datagram, and of another one with the same addresses.
var (
	ownFirst   = ipv4{src: "10.0.0.1", dst: "10.0.0.2", protocol: protoUDP, id: 7, fragment: flagMore}.wrap(udp(51880, 51880, transportMessage))
	ownLater   = ipv4{src: "10.0.0.1", dst: "10.0.0.2", protocol: protoUDP, id: 7, fragment: 185}.wrap([]byte("rest"))
	otherFirst = ipv4{src: "10.0.0.1", dst: "10.0.0.2", protocol: protoUDP, id: 8, fragment: flagMore}.wrap(udp(5000, 51880, transportMessage))
	otherLater = ipv4{src: "10.0.0.1", dst: "10.0.0.2", protocol: protoUDP, id: 8, fragment: 185}.wrap([]byte("rest"))
	ownFirst6  = ipv6{src: "fd00::1", dst: "fd00::2", next: 44}.wrap(fragment6(protoUDP, 0, true, 7, udp(51880, 51880, transportMessage)))
	ownLater6  = ipv6{src: "fd00::1", dst: "fd00::2", next: 44}.wrap(fragment6(protoUDP, 1448, false, 7, []byte("rest")))
)

func pass(in Input, reason model.Reason) model.Result {
	return model.Result{Verdict: model.Pass, Reason: reason, Mark: in.Mark, Frame: in.Frame}
}

func drop(in Input, reason model.Reason) model.Result {
	return model.Result{Verdict: model.Drop, Reason: reason, Mark: in.Mark, Frame: in.Frame}
}

func redirect(in Input) model.Result {
	return model.Result{Verdict: model.Tunnel, Reason: model.ReasonRedirected, Mark: in.Mark, Frame: in.Frame, Ifindex: 9}
}

func redirectedTo(ifindex uint32) func(Input) model.Result {
	return func(in Input) model.Result {
		result := redirect(in)
		result.Ifindex = ifindex
		return result
	}
}

func handBack(frame []byte, mark, ifindex uint32) model.Result {
	return model.Result{Verdict: model.HandBack, Reason: model.ReasonDecrypted, Mark: mark, Frame: frame, Ifindex: ifindex}
}

// handedBack is the frame that from_tunnel makes for a device of the given last MAC byte.
func handedBack(last byte, etherType uint16, packet []byte) []byte {
	return slices.Concat([]byte{0x02, 0, 0, 0, 0, last}, []byte("\x02warrn"), u16(etherType), packet)
}

func v4(packet []byte) Input { return Input{Frame: ethernet(typeIPv4, packet)} }

func v6(packet []byte) Input { return Input{Frame: ethernet(typeIPv6, packet)} }

func marked(in Input) Input { return Input{Frame: in.Frame, L3: in.L3, Mark: 0x10} }

func raw(packet []byte) Input { return Input{Frame: packet, L3: true} }

func egress(name string, in Input, want func(Input) model.Result) situation {
	return situation{name: name, program: toNetdev, in: in, want: want(in)}
}

func (s situation) when(change func(*model.Config)) situation {
	s.change = change
	return s
}

// after are earlier packets of the same program.
func (s situation) after(packets ...Input) situation {
	for _, in := range packets {
		s.before = append(s.before, earlier{s.program, in})
	}
	return s
}

func passes(reason model.Reason) func(Input) model.Result {
	return func(in Input) model.Result { return pass(in, reason) }
}

func drops(reason model.Reason) func(Input) model.Result {
	return func(in Input) model.Result { return drop(in, reason) }
}

// redirectedAs is for packets that lose their VLAN tags.
func redirectedAs(frame []byte) func(Input) model.Result {
	return func(in Input) model.Result {
		result := redirect(in)
		result.Frame = frame
		return result
	}
}

func udpTo(src, dst string, from, to uint16, payload string) []byte {
	return ipv4{src: src, dst: dst, protocol: protoUDP}.wrap(udp(from, to, payload))
}

func chain6(next uint8, payload []byte) []byte {
	return ipv6{src: "fd00::1", dst: "fd00::2", next: next, hopLimit: 255}.wrap(payload)
}

// extensions wraps the payload in n destination options.
func extensions(n int, next uint8, payload []byte) (uint8, []byte) {
	for range n {
		next, payload = 60, extension(next, 0, payload)
	}
	return next, payload
}

func longChain(n int, next uint8, payload []byte) Input {
	return v6(chain6(extensions(n, next, payload)))
}

func egressSituations() []situation {
	options := []byte{7, 7, 4, 0, 0, 0, 0, 0}
	return slices.Concat([]situation{
		egress("pod to pod of a peer", v4(podToPod), redirect),
		egress("host to host of a peer", v4(hostToHost), redirect),
		egress("pod to pod of a peer, IPv6", v6(podToPod6), redirect),
		egress("on a device without link layer", raw(podToPod), redirect),
		egress("on a device without link layer, IPv6", raw(podToPod6), redirect),
		egress("marks of others stay", Input{Frame: ethernet(typeIPv4, podToPod), Mark: 0x4002}, redirect),
		egress("a process sets the mark on its own clear packet", marked(v4(hostToHost)), redirect),
		egress("a pod sets the mark on its own clear packet", marked(v4(podToPod)), redirect),
		egress("IPv4 options", v4(ipv4{src: "10.244.1.5", dst: "10.244.2.5", protocol: protoTCP, options: options}.wrap(tcp(1, 2))), redirect),
		egress("IPv4 later fragment", v4(ipv4{src: "10.244.1.5", dst: "10.244.2.5", protocol: protoTCP, fragment: 10}.wrap([]byte("rest"))), redirect),
		egress("to the single pod that lives here, inside a peer's prefix",
			v4(ipv4{src: "10.0.0.1", dst: "10.244.2.99", protocol: protoTCP}.wrap(tcp(1, 2))), passes(model.ReasonLocalDestination)),
		egress("to the longer prefix of another peer",
			v4(ipv4{src: "10.0.0.1", dst: "10.244.2.65", protocol: protoTCP}.wrap(tcp(1, 2))), redirect),
		egress("to the world", v4(ipv4{src: "10.0.0.1", dst: "192.0.2.1", protocol: protoTCP}.wrap(tcp(1, 2))), passes(model.ReasonNotCluster)),
		egress("to the world in strict mode", v4(ipv4{src: "10.0.0.1", dst: "192.0.2.1", protocol: protoTCP}.wrap(tcp(1, 2))), passes(model.ReasonNotCluster)).when(strict),
		egress("multicast", v4(ipv4{src: "10.0.0.1", dst: "224.0.0.251", protocol: protoUDP}.wrap(udp(5353, 5353, "who"))), passes(model.ReasonNotCluster)),
		egress("broadcast", v4(ipv4{src: "10.0.0.1", dst: "255.255.255.255", protocol: protoUDP}.wrap(udp(68, 67, ""))), passes(model.ReasonNotCluster)),
		egress("IPv4 address in IPv6 notation", v6(ipv6{src: "::ffff:10.0.0.1", dst: "::ffff:10.0.0.2", next: protoTCP}.wrap(tcp(1, 2))), redirect),
		egress("ARP", Input{Frame: arp}, passes(model.ReasonNotIP)),
		egress("neither on a device without link layer", raw(make([]byte, 20)), passes(model.ReasonNotIP)),
	}, egressOwn(), egressDiscovery(), egressRefused(), egressLink())
}

// egressOwn: what is and what is not an own WireGuard packet.
func egressOwn() []situation {
	const escape = "a proof is missing: "
	return []situation{
		egress("WireGuard", marked(v4(encrypted)), passes(model.ReasonEncrypted)),
		egress("WireGuard, IPv6", marked(v6(encrypted6)), passes(model.ReasonEncrypted)),
		egress("WireGuard without link layer", marked(raw(encrypted)), passes(model.ReasonEncrypted)),
		egress("WireGuard with other mark bits", Input{Frame: ethernet(typeIPv4, encrypted), Mark: 0xf00f0010}, passes(model.ReasonEncrypted)),
		egress("WireGuard in observe mode", marked(v4(encrypted)), passes(model.ReasonEncrypted)).when(observe),
		egress("WireGuard behind IPv4 options", marked(v4(ipv4{src: "10.0.0.1", dst: "10.0.0.2", protocol: protoUDP, options: make([]byte, 40)}.
			wrap(udp(51880, 1, transportMessage)))), passes(model.ReasonEncrypted)),
		egress("WireGuard behind hop-by-hop options", marked(v6(chain6(0, extension(protoUDP, 1, udp(51880, 1, transportMessage))))), passes(model.ReasonEncrypted)),
		egress("WireGuard to the world", marked(v4(udpTo("10.0.0.1", "192.0.2.1", 51880, 51880, transportMessage))), passes(model.ReasonEncrypted)),
		egress("WireGuard keepalive", marked(v4(udpTo("10.0.0.1", "10.0.0.2", 51880, 51880, "\x04\x00\x00\x00"))), passes(model.ReasonEncrypted)),
		egress(escape+"mark", v4(encrypted), redirect),
		egress(escape+"port", marked(v4(udpTo("10.0.0.1", "10.0.0.2", 51881, 51880, transportMessage))), redirect),
		egress(escape+"source is a pod", marked(v4(udpTo("10.244.1.5", "10.0.0.2", 51880, 51880, transportMessage))), redirect),
		egress(escape+"source is a peer", marked(v4(udpTo("10.0.0.5", "10.0.0.2", 51880, 51880, transportMessage))), passes(model.ReasonSourceNotAllowed)),
		egress(escape+"source is unknown", marked(v4(udpTo("192.0.2.1", "10.0.0.2", 51880, 51880, transportMessage))), drops(model.ReasonSourceNotAllowed)).when(strict),
		egress(escape+"message type 0", marked(v4(udpTo("10.0.0.1", "10.0.0.2", 51880, 51880, "\x00\x00\x00\x00data"))), redirect),
		egress(escape+"message type 5", marked(v4(udpTo("10.0.0.1", "10.0.0.2", 51880, 51880, "\x05\x00\x00\x00data"))), redirect),
		egress(escape+"reserved byte", marked(v4(udpTo("10.0.0.1", "10.0.0.2", 51880, 51880, "\x04\x00\x00\x01data"))), redirect),
		egress(escape+"payload too short", marked(v4(udpTo("10.0.0.1", "10.0.0.2", 51880, 51880, "\x04\x00\x00"))), redirect),
		egress(escape+"TCP", marked(v4(ipv4{src: "10.0.0.1", dst: "10.0.0.2", protocol: protoTCP}.wrap(udp(51880, 51880, transportMessage)))), redirect),
		egress("first fragment of WireGuard", marked(v4(ownFirst)), passes(model.ReasonEncrypted)),
		egress("later fragment of WireGuard", marked(v4(ownLater)), passes(model.ReasonEncrypted)).after(marked(v4(ownFirst))),
		egress("later fragment of WireGuard, IPv6", marked(v6(ownLater6)), passes(model.ReasonEncrypted)).after(marked(v6(ownFirst6))),
		egress(escape+"later fragment on its own", marked(v4(ownLater)), redirect),
		egress(escape+"later fragment without mark", v4(ownLater), redirect).after(marked(v4(ownFirst))),
		egress(escape+"later fragment of another datagram", marked(v4(otherLater)), redirect).after(marked(v4(ownFirst)), marked(v4(otherFirst))),
		egress(escape+"later fragment, first one not marked", marked(v4(ownLater)), redirect).after(v4(ownFirst)),
	}
}

func egressDiscovery() []situation {
	solicitation := icmp6(135)
	atomic := fragment6(protoICMP, 0, false, 1, solicitation)
	return []situation{
		egress("router solicitation", v6(chain6(protoICMP, icmp6(133))), passes(model.ReasonNeighbourDiscovery)),
		egress("neighbour solicitation", v6(chain6(protoICMP, solicitation)), passes(model.ReasonNeighbourDiscovery)),
		egress("neighbour solicitation in strict mode", v6(chain6(protoICMP, solicitation)), passes(model.ReasonNeighbourDiscovery)).when(strict),
		egress("redirect", v6(chain6(protoICMP, icmp6(137))), passes(model.ReasonNeighbourDiscovery)),
		egress("one type below", v6(chain6(protoICMP, icmp6(132))), redirect),
		egress("one type above", v6(chain6(protoICMP, icmp6(138))), redirect),
		egress("behind options", v6(chain6(0, extension(60, 2, extension(protoICMP, 0, solicitation)))), passes(model.ReasonNeighbourDiscovery)),
		egress("behind a routing header", v6(chain6(43, extension(protoICMP, 1, solicitation))), passes(model.ReasonNeighbourDiscovery)),
		egress("behind AH", v6(chain6(51, authentication(protoICMP, 4, solicitation))), passes(model.ReasonNeighbourDiscovery)),
		egress("behind a mobility header", v6(chain6(135, extension(protoICMP, 0, solicitation))), passes(model.ReasonNeighbourDiscovery)),
		egress("behind HIP and shim6", v6(chain6(139, extension(140, 0, extension(protoICMP, 0, solicitation)))), passes(model.ReasonNeighbourDiscovery)),
		egress("behind as many headers as are walked", longChain(8, protoICMP, solicitation), passes(model.ReasonNeighbourDiscovery)),
		egress("behind one more", longChain(9, protoICMP, solicitation), redirect),
		egress("with a hop limit of 254", v6(ipv6{src: "fd00::1", dst: "fd00::2", next: protoICMP, hopLimit: 254}.wrap(solicitation)), redirect),
		egress("with a fragment header", v6(chain6(44, atomic)), redirect),
		egress("with the type cut off", v6(chain6(protoICMP, nil)), redirect),
		egress("behind a header that is cut off", v6(chain6(60, []byte{protoICMP})), redirect),
		egress("behind a header that is longer than the packet", v6(chain6(60, extension(protoICMP, 200, nil)[:16])), redirect),
		egress("behind a fragment header that is cut off", v6(chain6(44, fragment6(protoICMP, 0, false, 1, nil)[:7])), redirect),
		egress("ICMPv6 in IPv4", v4(ipv4{src: "10.0.0.1", dst: "10.0.0.2", protocol: protoICMP}.wrap(solicitation)), redirect),
	}
}

// egressRefused: to the cluster, but not encrypted.
func egressRefused() []situation {
	from := func(src, dst string) Input { return v4(ipv4{src: src, dst: dst, protocol: protoTCP}.wrap(tcp(1, 2))) }
	return []situation{
		egress("to this node", from("10.0.0.2", "10.0.0.1"), passes(model.ReasonLocalDestination)),
		egress("to a pod of this node in strict mode", from("10.0.0.2", "10.244.1.9"), passes(model.ReasonLocalDestination)).when(strict),
		egress("no pair", from("10.0.0.1", "10.0.0.4"), passes(model.ReasonNoPair)),
		egress("no pair in observe mode", from("10.0.0.1", "10.0.0.4"), passes(model.ReasonNoPair)).when(observe),
		egress("no pair in strict mode", from("10.0.0.1", "10.0.0.4"), drops(model.ReasonNoPair)).when(strict),
		egress("key 0", from("10.0.0.1", "10.244.3.1"), passes(model.ReasonKeyZero)),
		egress("key 0 in strict mode", from("10.0.0.1", "10.244.3.1"), passes(model.ReasonKeyZero)).when(strict),
		egress("source outside the cluster", from("192.0.2.1", "10.244.2.5"), passes(model.ReasonSourceNotAllowed)),
		egress("source of another node", from("10.244.3.5", "10.244.2.5"), passes(model.ReasonSourceNotAllowed)),
		egress("source outside the cluster in observe mode", from("192.0.2.1", "10.244.2.5"), passes(model.ReasonSourceNotAllowed)).when(observe),
		egress("source outside the cluster in strict mode", from("192.0.2.1", "10.244.2.5"), drops(model.ReasonSourceNotAllowed)).when(strict),
		egress("no tunnel", v4(podToPod), passes(model.ReasonNoTunnel)).when(withoutTunnel),
		egress("a peer in another slot", v4(hostToSlot2), redirectedTo(11)).when(withSlot2),
		egress("a peer in another slot, IPv6", v6(hostToSlot2v6), redirectedTo(11)).when(withSlot2),
		egress("a peer in slot 0, of several", v4(podToPod), redirect).when(withSlot2),
		egress("a peer in a slot without a tunnel", v4(hostToSlot2), passes(model.ReasonNoTunnel)),
		egress("a peer in a slot without a tunnel in strict mode", v4(hostToSlot2), drops(model.ReasonNoTunnel)).when(strict),
		egress("WireGuard of another slot", marked(v4(ofSlot2)), passes(model.ReasonEncrypted)).when(withSlot2),
		egress("a proof is missing: port of a slot without a tunnel", marked(v4(ofSlot2)), redirect),
		egress("a proof is missing: port behind those of all slots", marked(v4(udpTo("10.0.0.1", "10.0.0.2", 51884, 51880, transportMessage))), redirect).when(withSlot2),
		egress("a proof is missing: port before those of all slots", marked(v4(udpTo("10.0.0.1", "10.0.0.2", 51879, 51880, transportMessage))), redirect).when(withSlot2),
		egress("no tunnel in strict mode", v4(podToPod), drops(model.ReasonNoTunnel)).when(all(withoutTunnel, strict)),
		egress("observe mode", v4(podToPod), passes(model.ReasonWouldRedirect)).when(observe),
		egress("observe mode without tunnel", v4(podToPod), passes(model.ReasonWouldRedirect)).when(all(observe, withoutTunnel)),
		egress("strict mode", v4(podToPod), redirect).when(strict),
	}
}

// egressLink: VLAN tags, and packets that are cut off. The kernel runs no packet that is shorter than the
// header that the outermost ethertype promises, so that these are behind a tag or without link layer.
func egressLink() []situation {
	behindTag := func(etherType uint16, packet []byte, n int) Input {
		return Input{Frame: tagged(etherType, cut(packet, n), typeVLAN)}
	}
	wrongVersion := slices.Clone(podToPod)
	wrongVersion[0] = 0x55
	wrongLength := slices.Clone(podToPod)
	wrongLength[0] = 0x44
	longHeader := slices.Clone(podToPod[:24])
	longHeader[0] = 0x47
	wrongVersion6 := slices.Clone(podToPod6)
	wrongVersion6[0] = 0x40
	untagged := ethernet(typeIPv4, podToPod)
	untagged6 := ethernet(typeIPv6, podToPod6)
	return []situation{
		egress("802.1Q", Input{Frame: tagged(typeIPv4, podToPod, typeVLAN)}, redirectedAs(untagged)),
		egress("802.1Q, IPv6", Input{Frame: tagged(typeIPv6, podToPod6, typeVLAN)}, redirectedAs(untagged6)),
		egress("802.1ad and 802.1Q", Input{Frame: tagged(typeIPv4, podToPod, typeQinQ, typeVLAN)}, redirectedAs(untagged)),
		egress("802.1ad and 802.1Q, IPv6", Input{Frame: tagged(typeIPv6, podToPod6, typeQinQ, typeVLAN)}, redirectedAs(untagged6)),
		egress("tagged to the world keeps its tags", Input{Frame: tagged(typeIPv4, ipv4{src: "10.0.0.1", dst: "192.0.2.1"}.wrap(nil), typeQinQ, typeVLAN)}, passes(model.ReasonNotCluster)),
		egress("tagged WireGuard", marked(Input{Frame: tagged(typeIPv4, encrypted, typeVLAN)}), passes(model.ReasonEncrypted)),
		egress("tagged ARP", Input{Frame: tagged(typeARP, make([]byte, 28), typeVLAN)}, passes(model.ReasonNotIP)),
		egress("three tags", Input{Frame: tagged(typeIPv4, podToPod, typeQinQ, typeVLAN, typeVLAN)}, passes(model.ReasonVLANTooDeep)),
		egress("three tags in observe mode", Input{Frame: tagged(typeIPv4, podToPod, typeQinQ, typeVLAN, typeVLAN)}, passes(model.ReasonVLANTooDeep)).when(observe),
		egress("three tags in strict mode", Input{Frame: tagged(typeIPv4, podToPod, typeQinQ, typeVLAN, typeVLAN)}, drops(model.ReasonVLANTooDeep)).when(strict),
		egress("tag cut off", Input{Frame: cut(tagged(typeIPv4, nil, typeVLAN), 17)}, drops(model.ReasonMalformed)),
		egress("second tag cut off", Input{Frame: cut(tagged(typeIPv4, nil, typeQinQ, typeVLAN), 20)}, drops(model.ReasonMalformed)),
		egress("nothing behind the tag", behindTag(typeIPv4, podToPod, 0), drops(model.ReasonMalformed)),
		egress("IPv4 header cut off", behindTag(typeIPv4, podToPod, 19), drops(model.ReasonMalformed)),
		egress("IPv4 header cut off in observe mode", behindTag(typeIPv4, podToPod, 19), passes(model.ReasonWouldDrop)).when(observe),
		egress("IPv4 header and no more", behindTag(typeIPv4, podToPod, 20), redirectedAs(untagged[:34])),
		egress("IPv4 header cut off without link layer", raw(cut(podToPod, 19)), drops(model.ReasonMalformed)),
		egress("IPv6 header cut off", behindTag(typeIPv6, podToPod6, 39), drops(model.ReasonMalformed)),
		egress("IPv6 header and no more", behindTag(typeIPv6, podToPod6, 40), redirectedAs(untagged6[:54])),
		egress("IPv6 header cut off without link layer", raw(cut(podToPod6, 39)), drops(model.ReasonMalformed)),
		egress("version of IPv4 wrong", v4(wrongVersion), drops(model.ReasonMalformed)),
		egress("length of IPv4 header wrong", v4(wrongLength), drops(model.ReasonMalformed)),
		egress("IPv4 options cut off", v4(longHeader), drops(model.ReasonMalformed)),
		egress("version of IPv6 wrong", v6(wrongVersion6), drops(model.ReasonMalformed)),
		egress("IPv6 behind the ethertype of IPv4", Input{Frame: ethernet(typeIPv4, podToPod6)}, drops(model.ReasonMalformed)),
	}
}

func ingress(name string, in Input, reason model.Reason) situation {
	return situation{name: name, program: fromNetdev, in: in, want: pass(in, reason)}
}

func ingressSituations() []situation {
	handedBackInput := func(in Input, mark uint32) Input { return Input{Frame: in.Frame, L3: in.L3, Mark: mark} }
	clears := func(name string, in Input, left uint32) situation {
		want := pass(in, model.ReasonHandedBack)
		want.Mark = left
		return situation{name: name, program: fromNetdev, in: in, want: want}
	}
	from := func(src, dst string) Input { return v4(ipv4{src: src, dst: dst, protocol: protoTCP}.wrap(tcp(1, 2))) }
	wireguard := udpTo("10.0.0.2", "10.0.0.1", 51880, 51880, transportMessage)
	return []situation{
		clears("handed back", handedBackInput(v4(reply), 0x10), 0),
		clears("handed back with marks of others", handedBackInput(v4(reply), 0x4012), 0x4002),
		clears("handed back without link layer", handedBackInput(raw(reply6), 0x10), 0),
		clears("handed back, whatever it is", handedBackInput(Input{Frame: arp}, 0x10), 0),
		ingress("clear from a peer's pod", v4(reply), model.ReasonClearFromPeer),
		ingress("clear from a peer's pod, IPv6", v6(reply6), model.ReasonClearFromPeer),
		ingress("clear from a peer, tagged", Input{Frame: tagged(typeIPv4, reply, typeVLAN)}, model.ReasonClearFromPeer),
		ingress("clear from a peer without link layer", raw(reply), model.ReasonClearFromPeer),
		ingress("clear from a peer, marks of others", Input{Frame: ethernet(typeIPv4, reply), Mark: 0x4002}, model.ReasonClearFromPeer),
		ingress("multicast from a peer", from("10.0.0.2", "224.0.0.18"), model.ReasonNotCluster),
		ingress("from the world", from("192.0.2.1", "10.0.0.1"), model.ReasonNotCluster),
		ingress("from a peer to the world", from("10.244.2.5", "192.0.2.1"), model.ReasonNotCluster),
		ingress("from a node with key 0", from("10.0.0.3", "10.0.0.1"), model.ReasonKeyZero),
		ingress("from a peer to a node with key 0", from("10.0.0.2", "10.0.0.3"), model.ReasonKeyZero),
		ingress("from a node without a pair", from("10.0.0.4", "10.0.0.1"), model.ReasonNoPair),
		ingress("from an address of this node", from("10.244.1.5", "10.0.0.1"), model.ReasonLocalSource),
		ingress("WireGuard", v4(wireguard), model.ReasonEncryptedIn),
		ingress("WireGuard for a slot that has no tunnel yet", v4(udpTo("10.0.0.2", "10.0.0.1", 51880, 51883, transportMessage)), model.ReasonEncryptedIn),
		ingress("WireGuard for a port behind those of all slots", v4(udpTo("10.0.0.2", "10.0.0.1", 51880, 51884, transportMessage)), model.ReasonClearFromPeer),
		ingress("WireGuard for a port before those of all slots", v4(udpTo("10.0.0.2", "10.0.0.1", 51880, 51879, transportMessage)), model.ReasonClearFromPeer),
		ingress("WireGuard from the world", v4(udpTo("192.0.2.1", "10.0.0.1", 1, 51880, transportMessage)), model.ReasonEncryptedIn),
		ingress("clear text to the port of WireGuard", v4(udpTo("10.0.0.2", "10.0.0.1", 51880, 51880, "hello, world")), model.ReasonClearFromPeer),
		ingress("later fragment of UDP from a machine", v4(ipv4{src: "10.0.0.2", dst: "10.0.0.1", protocol: protoUDP, fragment: 185}.wrap([]byte("rest"))), model.ReasonUDPFragmentIn),
		ingress("later fragment of UDP from a pod", v4(ipv4{src: "10.244.2.5", dst: "10.0.0.1", protocol: protoUDP, fragment: 185}.wrap([]byte("rest"))), model.ReasonClearFromPeer),
		ingress("later fragment of TCP from a machine", v4(ipv4{src: "10.0.0.2", dst: "10.0.0.1", protocol: protoTCP, fragment: 185}.wrap([]byte("rest"))), model.ReasonClearFromPeer),
		ingress("neighbour advertisement", v6(ipv6{src: "fd00::2", dst: "fd00::1", next: protoICMP, hopLimit: 255}.wrap(icmp6(136))), model.ReasonNeighbourDiscovery),
		ingress("ARP", Input{Frame: arp}, model.ReasonNotIP),
		ingress("three tags", Input{Frame: tagged(typeIPv4, reply, typeVLAN, typeVLAN, typeVLAN)}, model.ReasonVLANTooDeep),
		ingress("IPv4 header cut off", raw(cut(reply, 19)), model.ReasonMalformed),
	}
}

func tunnelSituations() []situation {
	arrives := func(name string, packet []byte, mark uint32, want model.Result) situation {
		return situation{name: name, program: fromTunnel, in: Input{Frame: packet, Mark: mark}, want: want}
	}
	stays := func(name string, packet []byte, reason model.Reason) situation {
		return arrives(name, packet, 0, pass(Input{Frame: packet}, reason))
	}
	byEth1 := ipv4{src: "10.244.2.65", dst: "10.0.0.1", protocol: protoTCP}.wrap(tcp(1, 2))
	byL3 := ipv4{src: "10.0.0.6", dst: "10.0.0.1", protocol: protoTCP}.wrap(tcp(1, 2))
	unknown := ipv4{src: "192.0.2.1", dst: "10.0.0.1", protocol: protoTCP}.wrap(tcp(1, 2))
	fromProbe := ipv6{src: "fe80:7761:7272:656e::5", dst: "fe80::6", next: protoUDP}.wrap(udp(1, 2, "who"))
	toProbe := ipv6{src: "fe80::5", dst: "fe80:7761:7272:656e::6", next: protoUDP}.wrap(udp(1, 2, "who"))
	return []situation{
		arrives("decrypted", reply, 0, handBack(handedBack(0x22, typeIPv4, reply), 0x10, 2)),
		arrives("decrypted, IPv6", reply6, 0, handBack(handedBack(0x22, typeIPv6, reply6), 0x10, 2)),
		arrives("decrypted with marks of others", reply, 0x4000, handBack(handedBack(0x22, typeIPv4, reply), 0x4010, 2)),
		arrives("by the underlay of the source", byEth1, 0, handBack(handedBack(0x77, typeIPv4, byEth1), 0x10, 7)),
		arrives("by an underlay without link layer", byL3, 0, handBack(byL3, 0x10, 5)),
		arrives("from an unknown source", unknown, 0, handBack(handedBack(0x22, typeIPv4, unknown), 0x10, 2)),
		arrives("in strict mode", reply, 0, handBack(handedBack(0x22, typeIPv4, reply), 0x10, 2)).when(strict),
		arrives("in observe mode", reply, 0, handBack(handedBack(0x22, typeIPv4, reply), 0x10, 2)).when(observe),
		arrives("by the underlay of the source, without primary", byEth1, 0, handBack(handedBack(0x77, typeIPv4, byEth1), 0x10, 7)).when(withoutPrimary),
		stays("no underlay", reply, model.ReasonNoUnderlay).when(withoutPrimary),
		stays("the primary underlay is gone", reply, model.ReasonNoUnderlay).when(func(c *model.Config) { c.PrimaryUnderlay = 3 }),
		stays("ingress by the device", reply, model.ReasonLeftOnDevice).when(ingressDevice),
		arrives("a probe", probing, 0x4000, drop(Input{Frame: probing, Mark: 0x4000}, model.ReasonProbe)),
		arrives("a probe, ingress by the device", probing, 0, drop(Input{Frame: probing}, model.ReasonProbe)).when(ingressDevice),
		arrives("a probe in observe mode", probing, 0, drop(Input{Frame: probing}, model.ReasonProbe)).when(observe),
		arrives("from the address of a probe to another", fromProbe, 0, handBack(handedBack(0x22, typeIPv6, fromProbe), 0x10, 2)),
		arrives("to the address of a probe from another", toProbe, 0, handBack(handedBack(0x22, typeIPv6, toProbe), 0x10, 2)),
		stays("IPv4 header cut off", cut(reply, 19), model.ReasonMalformed),
		stays("IPv6 header cut off", cut(reply6, 39), model.ReasonMalformed),
		stays("not IP", make([]byte, 20), model.ReasonNotIP),
	}
}

// elsewhere are reasons that no packet of BPF_PROG_RUN has, and the test that shows them.
var elsewhere = map[model.Program]map[model.Reason]string{
	toNetdev:   {model.ReasonHelperFailed: "TestForgedProtocolIsDropped", model.ReasonRecut: "TestRunningTCPIsCutSmaller"},
	fromTunnel: {model.ReasonHelperFailed: "TestHugePacketStaysOnDevice"},
}

// TestEveryReasonHasASituation fails when a reason was added without a packet that shows it.
func TestEveryReasonHasASituation(t *testing.T) {
	shown := map[model.Program]map[model.Reason]bool{toNetdev: {}, fromNetdev: {}, fromTunnel: {}}
	for _, s := range situations() {
		shown[s.program][s.want.Reason] = true
	}
	for _, program := range model.Programs() {
		for _, reason := range model.Reasons() {
			given := slices.Contains(reason.Programs(), program)
			seen := shown[program][reason] || elsewhere[program][reason] != ""
			if given != seen {
				t.Errorf("%v of %v: listed %v, shown by a situation %v", reason, program, given, seen)
			}
		}
	}
}

func situations() []situation {
	return slices.Concat(egressSituations(), ingressSituations(), tunnelSituations(), sizeSituations(), tooBigSituations(), confirmSituations())
}

// TestSituationsInModel needs no kernel.
func TestSituationsInModel(t *testing.T) {
	for _, s := range situations() {
		t.Run(s.program.String()+"/"+s.name, func(t *testing.T) {
			config := s.config()
			known := newMemory()
			for _, earlier := range s.before {
				runModel(earlier.program, earlier.in, config, known)
			}
			if diff := cmp.Diff(s.want, runModel(s.program, s.in, config, known)); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

func (s situation) config() model.Config {
	config := testConfig()
	if s.change != nil {
		s.change(&config)
	}
	return config
}

// TestSituationsInKernel: verdict, mark, every byte, and that exactly one counter counts.
func TestSituationsInKernel(t *testing.T) {
	d := openCluster(t)
	for _, s := range byConfig(situations()) {
		t.Run(s.program.String()+"/"+s.name, func(t *testing.T) {
			configure(t, d, s.config())
			d.forget(t)
			for _, earlier := range s.before {
				runKernel(t, d, earlier.program, earlier.in)
			}
			counted := countersOf(t, d, s.program, s.in)
			if diff := cmp.Diff(s.want, runKernel(t, d, s.program, s.in)); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			counted[s.want.Reason] = counterValue{
				Packets: counted[s.want.Reason].Packets + 1,
				Bytes:   counted[s.want.Reason].Bytes + uint64(len(s.in.Frame)),
			}
			if diff := cmp.Diff(counted, countersOf(t, d, s.program, s.in)); diff != "" {
				t.Errorf("counters (-want +got):\n%s", diff)
			}
		})
	}
}

// byConfig puts situations of the same configuration together: loading the programs is what takes time.
func byConfig(all []situation) []situation {
	slices.SortStableFunc(all, func(a, b situation) int {
		return strings.Compare(fmt.Sprint(a.config()), fmt.Sprint(b.config()))
	})
	return all
}

func runKernel(t testing.TB, d *Datapath, program model.Program, in Input) model.Result {
	t.Helper()
	result, err := d.Run(program, in)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// probeOf returns the copy of a program that Run runs for such a packet.
func probeOf(t testing.TB, d *Datapath, program model.Program, in Input) *probe {
	t.Helper()
	probe, err := d.probe(variant{program: program, l3: in.L3 && program != fromTunnel})
	if err != nil {
		t.Fatal(err)
	}
	return probe
}

// countersOf returns what the copy counted, without zeros.
func countersOf(t testing.TB, d *Datapath, program model.Program, in Input) map[model.Reason]counterValue {
	t.Helper()
	counters, err := readCounters(probeOf(t, d, program, in).collection.Maps[mapReasons])
	if err != nil {
		t.Fatal(err)
	}
	all := map[model.Reason]counterValue{}
	for _, c := range counters {
		if c.Packets == 0 {
			continue
		}
		if c.Program != program {
			t.Errorf("%v counted for %v", program, c.Program)
		}
		all[c.Reason] = counterValue{Packets: c.Packets, Bytes: c.Bytes}
	}
	return all
}

// forget makes the copies forget the packets that they saw.
func (d *Datapath) forget(t testing.TB) {
	t.Helper()
	for _, probe := range d.probes {
		for _, name := range []string{mapDatagrams, mapTold, mapFlows} {
			empty(t, probe.collection.Maps[name])
		}
	}
}

func empty(t testing.TB, m *ebpf.Map) {
	t.Helper()
	var key []byte
	for m.NextKey(nil, &key) == nil {
		if err := m.Delete(key); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDatagramIsForgotten: an identification comes round again, and then it is another datagram's.
func TestDatagramIsForgotten(t *testing.T) {
	d := openCluster(t)
	configure(t, d, testConfig())
	runKernel(t, d, toNetdev, marked(v4(ownFirst)))
	datagrams := probeOf(t, d, toNetdev, Input{}).collection.Maps[mapDatagrams]
	var key datagram
	var left uint64
	if err := errors.Join(datagrams.NextKey(nil, &key), datagrams.Lookup(key, &left)); err != nil {
		t.Fatal(err)
	}
	if err := datagrams.Put(key, left-uint64(time.Second)); err != nil {
		t.Fatal(err)
	}
	if got := runKernel(t, d, toNetdev, marked(v4(ownLater))); got.Reason != model.ReasonRedirected {
		t.Errorf("a second later: %v", got.Reason)
	}
}

// TestRunDoesNotCount: whoever asks what would happen changes no counter.
func TestRunDoesNotCount(t *testing.T) {
	d := openCluster(t)
	configure(t, d, testConfig())
	runKernel(t, d, toNetdev, v4(podToPod))
	runKernel(t, d, toNetdev, v4(ipv4{src: "10.0.0.1", dst: "10.0.0.4"}.wrap(nil)))
	counters, err := d.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range counters {
		if c.Packets != 0 || c.Bytes != 0 {
			t.Errorf("counted %+v", c)
		}
	}
	if peers, err := d.PeerCounters(); err != nil || len(peers) != 0 {
		t.Errorf("counted by peer %+v: %v", peers, err)
	}
}

func TestRunRefusesWhatTheKernelDoes(t *testing.T) {
	d := openCluster(t)
	if _, err := d.Run(toNetdev, v4(podToPod)); err == nil || !strings.Contains(err.Error(), "not configured") {
		t.Errorf("before Configure: %v", err)
	}
	configure(t, d, testConfig())
	if _, err := d.Run(toNetdev, Input{Frame: make([]byte, 13)}); err == nil || !strings.Contains(err.Error(), "14 bytes") {
		t.Errorf("too short: %v", err)
	}
}
