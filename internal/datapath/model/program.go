package model

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"warren/internal/cluster"
)

// HandBackMAC is the source address of decrypted packets that are handed back to an Ethernet device:
// "warrn", locally administered. It is never on a wire.
var HandBackMAC = [6]byte{0x02, 0x77, 0x61, 0x72, 0x72, 0x6e}

// ProbePrefix has the addresses between which Warren probes its peers through the tunnel: link-local, with
// "warren" in ASCII. No packet of others comes from and goes to it.
var ProbePrefix = netip.MustParsePrefix("fe80:7761:7272:656e::/64")

// Underlay is a device that the cluster's packets come and go by.
type Underlay struct {
	// MAC is zero for a device without link layer header.
	MAC [6]byte
	L3  bool
}

// Result is what a program did with a packet.
type Result struct {
	Verdict Verdict
	Reason  Reason
	// Mark after the program.
	Mark uint32
	// Frame after the program. One that goes to the WireGuard device still has its link layer
	// header, which the redirect takes off, but no VLAN tag.
	Frame []byte
	// Ifindex of the device that the packet is redirected to, else 0.
	Ifindex uint32
}

// ToNetdev is the program on the egress of an underlay device.
func ToNetdev(frame []byte, meta Meta, config Config, world World) Result {
	result := Result{Mark: meta.Mark, Frame: frame}
	p, unreadable := Parse(frame, meta)
	if unreadable != 0 {
		result.Verdict, result.Reason = decideUnreadable(unreadable, config.Mode)
		return result
	}
	datagram := Datagram{Src: p.Src, Dst: p.Dst, ID: p.ID}
	p.OwnDatagram = p.Fragment == LaterFragment && meta.Datagrams[datagram]
	world.inform(&p, config)
	dst := world.find(p.Dst)
	flow, silent := p.silentFlow(dst, config, false)
	p.InClear = silent && meta.Flows[flow]
	result.Verdict, result.Reason = Decide(p, world.find(p.Src), dst, config)
	if result.Reason == ReasonEncrypted && p.Fragment == FirstFragment && meta.Datagrams != nil {
		meta.Datagrams[datagram] = true
	}
	if result.Verdict == Tunnel {
		p.intoTunnel(&result, meta, config, world)
	}
	return result
}

// intoTunnel makes a packet fit that is to take the tunnel.
func (p Packet) intoTunnel(result *Result, meta Meta, config Config, world World) {
	peer := world.find(p.Dst)
	mtu := config.TunnelMTU(peer)
	result.Ifindex = config.Tunnels[peer.Slot]
	result.Frame = p.clampMSS(p.withoutTags(result.Frame), p.plainOffset(), mtu)
	result.Reason = fit(len(result.Frame)-p.plainOffset(), meta.Segments, int(mtu))
	if result.Reason == ReasonOversize && p.tellable(world.find(p.Src), mtu, config.Oversize) && meta.mayTell(p) {
		p.tell(result, meta, config, mtu)
	}
}

// decideUnreadable has the rows of the egress table in which the addresses are not known.
func decideUnreadable(reason Reason, mode cluster.Mode) (Verdict, Reason) {
	switch {
	case reason == ReasonMalformed && mode == cluster.ModeObserve:
		return Pass, ReasonWouldDrop
	case reason == ReasonMalformed, reason == ReasonVLANTooDeep && mode == cluster.ModeStrict:
		return Drop, reason
	}
	return Pass, reason
}

// FromNetdev is the program on the ingress of an underlay device.
func FromNetdev(frame []byte, meta Meta, config Config, world World) Result {
	result := Result{Verdict: Pass, Mark: meta.Mark, Frame: frame}
	if config.marked(meta.Mark) {
		result.Reason, result.Mark = ReasonHandedBack, meta.Mark&^config.MarkMask
		return result
	}
	p, unreadable := Parse(frame, meta)
	if unreadable != 0 {
		result.Reason = unreadable
		if unreadable == ReasonVLANTooDeep {
			result.Verdict = config.unlessStrict()
		}
		return result
	}
	world.inform(&p, config)
	src := world.find(p.Src)
	flow, silent := p.silentFlow(src, config, true)
	p.InClear = silent && p.comesInClear(flow, meta, world)
	result.Verdict, result.Reason = decideIngress(p, src, world.find(p.Dst), config)
	if p.InClear && result.Reason == ReasonBootstrap && meta.Flows != nil {
		meta.Flows[flow] = true
	}
	return result
}

// FromTunnel is the program on the ingress of the WireGuard device, whose packets have no link layer
// header.
func FromTunnel(packet []byte, meta Meta, config Config, world World) Result {
	meta.L3 = true
	result := Result{Verdict: Pass, Mark: meta.Mark, Frame: packet}
	p, unreadable := Parse(packet, meta)
	if unreadable != 0 {
		result.Reason = unreadable
		return result
	}
	if ProbePrefix.Contains(p.Src) && ProbePrefix.Contains(p.Dst) {
		result.Verdict, result.Reason = Drop, ReasonProbe
		return result
	}
	if flow, silent := p.silentFlow(world.find(p.Src), config, true); silent {
		delete(meta.Flows, flow) // what came encrypted is answered so
	}
	packet = p.clampMSS(packet, 0, config.TunnelMTU(world.find(p.Src)))
	result.Frame = packet
	if config.Ingress == IngressDevice {
		result.Reason = ReasonLeftOnDevice
		return result
	}
	ifindex := config.PrimaryUnderlay
	if src := world.find(p.Src); src != nil {
		if _, ok := world.Underlays[src.Underlay]; ok {
			ifindex = src.Underlay
		}
	}
	underlay, ok := world.Underlays[ifindex]
	if !ok {
		result.Reason = ReasonNoUnderlay
		return result
	}
	return Result{
		Verdict: HandBack,
		Reason:  ReasonDecrypted,
		Mark:    meta.Mark&^config.MarkMask | config.Mark,
		Frame:   underlay.dress(packet, p.IPv6),
		Ifindex: ifindex,
	}
}

// withoutTags returns the frame with nothing between the MAC addresses and the ethertype of the IP
// packet.
func (p Packet) withoutTags(frame []byte) []byte {
	if p.tags == 0 || p.ipOffset == 0 {
		return frame
	}
	return slices.Concat(frame[:macLen], frame[p.ipOffset-2:])
}

// plainOffset is where the IP header starts in a frame without tags.
func (p Packet) plainOffset() int { return min(p.ipOffset, ethernetLen) }

// dress gives an IP packet the header with which it would have come in by the device.
func (u Underlay) dress(packet []byte, ipv6 bool) []byte {
	if u.L3 {
		return packet
	}
	etherType := uint16(etherTypeIPv4)
	if ipv6 {
		etherType = etherTypeIPv6
	}
	header := binary.BigEndian.AppendUint16(slices.Concat(u.MAC[:], HandBackMAC[:]), etherType)
	return append(header, packet...)
}
