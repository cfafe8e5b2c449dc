package model

import (
	"net/netip"

	"warren/internal/cluster"
	"warren/internal/plan"
)

// Flow is a TCP connection with a server of this node.
type Flow struct{ Server, Client netip.AddrPort }

// silentFlow returns the connection of a packet that a silent peer sends to this node (toServer), or this node to the
// peer. ok is false where it does not matter.
func (p Packet) silentFlow(peer *plan.Entry, config Config, toServer bool) (f Flow, ok bool) {
	f = Flow{Server: netip.AddrPortFrom(p.Src, p.SrcPort), Client: netip.AddrPortFrom(p.Dst, p.DstPort)}
	if toServer {
		f.Server, f.Client = f.Client, f.Server
	}
	return f, peer != nil && peer.Silent && config.Mode != cluster.ModeObserve && p.showsTCP && p.Fragment == Whole
}

// comesInClear reports whether a packet that came in belongs to a connection that a silent peer began in clear, or
// begins one.
func (p Packet) comesInClear(f Flow, meta Meta, world World) bool {
	if !world.Servers[f.Server] {
		return false
	}
	return meta.Flows[f] || p.SYN && world.Free != nil && world.Free(f)
}
