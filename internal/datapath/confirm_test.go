package datapath

import (
	"slices"

	"warren/internal/datapath/model"
)

// What becomes of packets of peers that are not confirmed, of strict mode's refusals, and of the
// exceptions from them.
func confirmSituations() []situation {
	return slices.Concat(sentSituations(), refusedSituations(), bootstrapSituations(), silentSituations(), exemptSituations())
}

func exempting(c *model.Config) { c.Exemptions = true }

// over4 and over6 are packets of TCP.
func over4(src, dst string, from, to uint16) Input {
	return v4(ipv4{src: src, dst: dst, protocol: protoTCP}.wrap(tcp(from, to)))
}

func over6(src, dst string, from, to uint16) Input {
	return v6(ipv6{src: src, dst: dst, next: protoTCP}.wrap(tcp(from, to)))
}

func sentSituations() []situation {
	toNode, toPod := over4("10.0.0.1", "10.0.0.8", 1, 2), over4("10.244.1.5", "10.244.8.5", 1, 2)
	toNode6 := over6("fd00::1", "fd00::8", 1, 2)
	return []situation{
		egress("not confirmed", toNode, passes(model.ReasonNotConfirmed)),
		egress("not confirmed, pods", toPod, passes(model.ReasonNotConfirmed)),
		egress("not confirmed, IPv6", toNode6, passes(model.ReasonNotConfirmed)),
		egress("not confirmed, observe mode", toNode, passes(model.ReasonWouldRedirect)).when(observe),
		egress("not confirmed, strict mode", toNode, drops(model.ReasonNotConfirmed)).when(strict),
		egress("not confirmed, pods, strict mode", toPod, drops(model.ReasonNotConfirmed)).when(strict),
		egress("not confirmed, IPv6, strict mode", toNode6, drops(model.ReasonNotConfirmed)).when(strict),
		egress("not confirmed, no tunnel", toNode, passes(model.ReasonNotConfirmed)).when(withoutTunnel),
		egress("not confirmed, from elsewhere", over4("192.0.2.1", "10.0.0.8", 1, 2), passes(model.ReasonSourceNotAllowed)),
		egress("confirmed, but may send in clear", over4("10.0.0.1", "10.0.0.9", 1, 2), redirect).when(strict),
	}
}

// refusedSituations: strict mode on ingress.
func refusedSituations() []situation {
	refuses := func(name string, in Input, reason model.Reason) situation {
		return situation{name: "strict mode: " + name, program: fromNetdev, in: in, want: drop(in, reason)}.when(strict)
	}
	admits := func(name string, in Input, reason model.Reason) situation {
		return ingress("strict mode: "+name, in, reason).when(strict)
	}
	fragment := func(src string, protocol uint8) Input {
		return v4(ipv4{src: src, dst: "10.0.0.1", protocol: protocol, fragment: 185}.wrap([]byte("rest")))
	}
	toPodsPort := v4(udpTo("10.244.2.5", "10.244.1.5", 51880, 51880, transportMessage))
	return []situation{
		refuses("clear from a peer's pod", v4(reply), model.ReasonClearFromPeer),
		refuses("clear from a peer's pod, IPv6", v6(reply6), model.ReasonClearFromPeer),
		refuses("clear from a peer", over4("10.0.0.2", "10.0.0.1", 1, 2), model.ReasonClearFromPeer),
		refuses("clear from a peer, tagged", Input{Frame: tagged(typeIPv4, reply, typeVLAN)}, model.ReasonClearFromPeer),
		refuses("clear from a peer without link layer", raw(reply), model.ReasonClearFromPeer),
		refuses("clear text to the port of WireGuard", v4(udpTo("10.0.0.2", "10.0.0.1", 51880, 51880, "hello, world")), model.ReasonClearFromPeer),
		refuses("like WireGuard, to a pod", toPodsPort, model.ReasonClearFromPeer),
		refuses("later fragment of UDP from a pod", fragment("10.244.2.5", protoUDP), model.ReasonClearFromPeer),
		refuses("later fragment of TCP from a machine", fragment("10.0.0.2", protoTCP), model.ReasonClearFromPeer),
		refuses("from a node without a pair", over4("10.0.0.4", "10.0.0.1", 1, 2), model.ReasonNoPair),
		refuses("more VLAN tags than are looked behind", Input{Frame: tagged(typeIPv4, reply, typeVLAN, typeVLAN, typeVLAN)}, model.ReasonVLANTooDeep),
		admits("from a node that is not confirmed", over4("10.0.0.8", "10.0.0.1", 1, 2), model.ReasonClearFromPeer),
		admits("from a node that may send in clear", over4("10.0.0.9", "10.0.0.1", 1, 2), model.ReasonClearFromPeer),
		admits("from a node with key 0", over4("10.0.0.3", "10.0.0.1", 1, 2), model.ReasonKeyZero),
		admits("to a node with key 0", over4("10.0.0.2", "10.0.0.3", 1, 2), model.ReasonKeyZero),
		admits("from the world", over4("192.0.2.1", "10.0.0.1", 1, 2), model.ReasonNotCluster),
		admits("to the world", over4("10.0.0.2", "192.0.2.1", 1, 2), model.ReasonNotCluster),
		admits("from this node", over4("10.244.1.5", "10.0.0.1", 1, 2), model.ReasonLocalSource),
		admits("WireGuard", v4(udpTo("10.0.0.2", "10.0.0.1", 51880, 51880, transportMessage)), model.ReasonEncryptedIn),
		admits("WireGuard of others that comes past", v4(udpTo("10.0.0.2", "10.0.0.5", 51880, 51880, transportMessage)), model.ReasonEncryptedIn),
		admits("later fragment of UDP from a machine", fragment("10.0.0.2", protoUDP), model.ReasonUDPFragmentIn),
		admits("neighbour advertisement", v6(ipv6{src: "fd00::2", dst: "fd00::1", next: protoICMP, hopLimit: 255}.wrap(icmp6(136))), model.ReasonNeighbourDiscovery),
		admits("IPv4 header cut off", raw(cut(reply, 19)), model.ReasonMalformed),
		ingress("like WireGuard, to a pod", toPodsPort, model.ReasonClearFromPeer),
	}
}

func bootstrapSituations() []situation {
	sent := func(name string, in Input) situation {
		return egress("bootstrap: "+name, in, passes(model.ReasonBootstrap)).when(strict)
	}
	came := func(name string, in Input) situation {
		return ingress("bootstrap: "+name, in, model.ReasonBootstrap).when(strict)
	}
	closed := func(name string, in Input, reason model.Reason) situation {
		return egress("no bootstrap: "+name, in, drops(reason)).when(strict)
	}
	refused := func(name string, in Input, reason model.Reason) situation {
		return situation{name: "no bootstrap: " + name, program: fromNetdev, in: in, want: drop(in, reason)}.when(strict)
	}
	first := v4(ipv4{src: "10.0.0.1", dst: "10.0.0.8", protocol: protoTCP, fragment: flagMore}.wrap(tcp(1, 6443)))
	return []situation{
		sent("to a server", over4("10.0.0.1", "10.0.0.8", 1, 6443)),
		sent("to a server, IPv6", over6("fd00::1", "fd00::8", 1, 6443)),
		sent("to a server, from a pod", over4("10.244.1.5", "10.0.0.8", 1, 6443)),
		sent("to a server whose key is not known", over4("10.0.0.1", "10.0.0.4", 1, 6443)),
		sent("answer of this node's server", over4("10.0.0.1", "10.0.0.8", 6443, 1)),
		sent("answer of this node's server, IPv6", over6("fd00::1", "fd00::8", 6443, 1)),
		sent("answer of this node's server to a pod", over4("10.0.0.1", "10.244.8.5", 6443, 1)),
		sent("behind IPv4 options", v4(ipv4{src: "10.0.0.1", dst: "10.0.0.8", protocol: protoTCP, options: make([]byte, 8)}.wrap(tcp(1, 6443)))),
		came("to this node's server", over4("10.0.0.8", "10.0.0.1", 1, 6443)),
		came("to this node's server, IPv6", over6("fd00::8", "fd00::1", 1, 6443)),
		came("to this node's server, from one whose key is not known", over4("10.0.0.4", "10.0.0.1", 1, 6443)),
		came("answer of a server", over4("10.0.0.8", "10.0.0.1", 6443, 1)),
		came("answer of a server whose key is not known", over4("10.0.0.4", "10.0.0.1", 6443, 1)),
		came("to this node's server, from one that may not send in clear", over4("10.0.0.11", "10.0.0.1", 1, 6443)),
		came("answer of a server that may not send in clear", over4("10.0.0.11", "10.0.0.1", 6443, 1)),
		closed("to another port", over4("10.0.0.1", "10.0.0.8", 1, 6444), model.ReasonNotConfirmed),
		closed("to another address", over4("10.0.0.1", "10.244.8.5", 1, 6443), model.ReasonNotConfirmed),
		closed("from the port without a server", over4("10.244.1.5", "10.0.0.8", 6443, 1), model.ReasonNotConfirmed),
		closed("UDP", v4(udpTo("10.0.0.1", "10.0.0.8", 1, 6443, "hello, world")), model.ReasonNotConfirmed),
		closed("fragment", first, model.ReasonNotConfirmed),
		closed("cut off before the port", v4(ipv4{src: "10.0.0.1", dst: "10.0.0.8", protocol: protoTCP}.wrap([]byte{0, 1, 25})), model.ReasonNotConfirmed),
		closed("from elsewhere", over4("192.0.2.1", "10.0.0.8", 1, 6443), model.ReasonSourceNotAllowed),
		closed("from elsewhere to one whose key is not known", over4("192.0.2.1", "10.0.0.4", 1, 6443), model.ReasonNoPair),
		refused("to this node's server from a confirmed peer", over4("10.0.0.2", "10.0.0.1", 1, 6443), model.ReasonClearFromPeer),
		refused("answer of a confirmed peer", over4("10.0.0.2", "10.0.0.1", 6443, 1), model.ReasonClearFromPeer),
		refused("from one that may not send in clear", over4("10.0.0.11", "10.0.0.1", 1, 6444), model.ReasonClearFromPeer),
		refused("from one whose key is not known", over4("10.0.0.4", "10.0.0.1", 1, 6444), model.ReasonNoPair),
		ingress("no bootstrap: answer of a confirmed peer that may send in clear", over4("10.0.0.9", "10.0.0.1", 6443, 1), model.ReasonClearFromPeer).when(strict),
		egress("no bootstrap: to a confirmed server", over4("10.0.0.1", "10.0.0.2", 1, 6443), redirect).when(strict),
		egress("no bootstrap: this node's server to a confirmed peer", over4("10.0.0.1", "10.0.0.2", 6443, 1), redirect).when(strict),
		egress("no bootstrap: permissive mode", over4("10.0.0.1", "10.0.0.8", 1, 6443), passes(model.ReasonNotConfirmed)),
		ingress("no bootstrap: permissive mode", over4("10.0.0.8", "10.0.0.1", 1, 6443), model.ReasonClearFromPeer),
	}
}

func exemptSituations() []situation {
	sent := func(name string, in Input) situation {
		return egress("exempt: "+name, in, passes(model.ReasonExempt)).when(exempting)
	}
	came := func(name string, in Input) situation {
		return ingress("exempt: "+name, in, model.ReasonExempt).when(all(exempting, strict))
	}
	snmp := v4(udpTo("10.0.0.1", "10.0.0.2", 40000, 161, "name?"))
	ipip := func(dst string, fragment uint16) Input {
		return v4(ipv4{src: "10.0.0.1", dst: dst, protocol: 4, fragment: fragment}.wrap([]byte("packet")))
	}
	later := v4(ipv4{src: "10.0.0.1", dst: "10.0.0.2", protocol: protoUDP, fragment: 185}.wrap(udp(1, 161, "name?")))
	return []situation{
		sent("protocol and port, of a prefix around", snmp),
		sent("protocol and port, answer", v4(udpTo("10.0.0.1", "10.0.0.2", 161, 40000, "name"))),
		sent("payload shorter than WireGuard's", v4(udpTo("10.0.0.1", "10.0.0.2", 40000, 161, ""))),
		sent("port of a prefix of its own", over4("10.0.0.1", "10.0.0.2", 1, 9100)),
		sent("port, by the source", over4("10.0.0.1", "10.244.2.5", 9100, 1)),
		sent("port, IPv6", over6("fd00:244:1::5", "fd00:244:2::5", 1, 9100)),
		sent("protocol", ipip("10.0.0.2", 0)),
		sent("protocol, later fragment", ipip("10.0.0.2", 185)),
		sent("everything of a prefix", over4("10.0.0.1", "10.244.2.81", 1, 2)),
		sent("to a peer that is not confirmed", ipip("10.0.0.8", 0)),
		sent("observe mode", snmp).when(all(exempting, observe)),
		sent("strict mode", snmp).when(all(exempting, strict)),
		sent("strict mode, to a peer that is not confirmed", ipip("10.0.0.8", 0)).when(all(exempting, strict)),
		sent("strict mode, to a node without a pair", ipip("10.0.0.4", 0)).when(all(exempting, strict)),
		sent("strict mode, from elsewhere", v4(udpTo("192.0.2.1", "10.0.0.2", 1, 161, "name?"))).when(all(exempting, strict)),
		came("protocol and port", v4(udpTo("10.0.0.2", "10.0.0.1", 40000, 161, "name?"))),
		came("protocol and port, answer", v4(udpTo("10.0.0.2", "10.0.0.1", 161, 40000, "name"))),
		came("port, IPv6", over6("fd00:244:2::5", "fd00:244:1::5", 9100, 1)),
		came("everything of a prefix", over4("10.244.2.81", "10.0.0.1", 1, 2)),
		came("from a node without a pair", v4(ipv4{src: "10.0.0.4", dst: "10.0.0.1", protocol: 4}.wrap([]byte("packet")))),
		egress("not exempt: by configuration", snmp, redirect),
		egress("not exempt: another protocol", over4("10.0.0.1", "10.0.0.2", 1, 161), redirect).when(exempting),
		egress("not exempt: another port", v4(udpTo("10.0.0.1", "10.0.0.2", 1, 162, "name?")), redirect).when(exempting),
		egress("not exempt: another prefix", over4("10.244.1.5", "10.244.2.5", 1, 9100), redirect).when(exempting),
		egress("not exempt: later fragment, which shows no port", later, redirect).when(exempting),
		egress("not exempt: not of the cluster", v4(udpTo("10.0.0.1", "192.0.2.1", 1, 161, "name?")), passes(model.ReasonNotCluster)).when(exempting),
		egress("not exempt: WireGuard itself", marked(v4(encrypted)), passes(model.ReasonEncrypted)).when(exempting),
	}
}
