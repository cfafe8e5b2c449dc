package model

import (
	"net/netip"

	"warren/internal/plan"
)

// World is what the programs find in their maps.
type World struct {
	// Lookup returns the entry of an unmapped address: its own, else that of the longest prefix.
	Lookup func(netip.Addr) (plan.Entry, bool)
	// Servers are the ports that a node needs before it is confirmed: API servers and etcd. Unmapped.
	Servers map[netip.AddrPort]bool
	// Free reports whether this machine listens at the server's end of a connection and has none with these two ends.
	// nil: it listens nowhere.
	Free func(Flow) bool
	// Exemptions pass in clear if Config.Exemptions says that there are any.
	Exemptions []Exemption
	// Underlays are the devices that packets can be handed back to, by index.
	Underlays map[uint32]Underlay
}

// MaxExemptions is how many the programs have room for.
const MaxExemptions = 64

// Exemption is traffic of the cluster that stays in clear: in every mode, in both directions.
type Exemption struct {
	// Prefix has the source or the destination, canonical.
	Prefix netip.Prefix
	// Protocol is the number behind the IPv6 extension headers; 0 is every one.
	Protocol uint8
	// Port is the source's or the destination's, of TCP, UDP and SCTP; 0 is every one. Later fragments show
	// none, and are not exempt then.
	Port uint16
}

// covers says whether the exemption is about the packet.
func (e Exemption) covers(p Packet) bool {
	return (e.Prefix.Contains(p.Src) || e.Prefix.Contains(p.Dst)) &&
		(e.Protocol == 0 || e.Protocol == p.Protocol) &&
		(e.Port == 0 || e.Port == p.SrcPort || e.Port == p.DstPort)
}

// inform adds to a packet what the maps say of it.
func (w World) inform(p *Packet, config Config) {
	for _, exemption := range w.Exemptions {
		p.Exempt = p.Exempt || config.Exemptions && exemption.covers(*p)
	}
	p.Server = p.Protocol == protocolTCP && p.Fragment == Whole &&
		(w.Servers[netip.AddrPortFrom(p.Src, p.SrcPort)] || w.Servers[netip.AddrPortFrom(p.Dst, p.DstPort)])
}

func (w World) find(addr netip.Addr) *plan.Entry {
	if entry, ok := w.Lookup(addr); ok {
		return &entry
	}
	return nil
}
