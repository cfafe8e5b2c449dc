package model

import (
	"fmt"

	"warren/internal/cluster"
	"warren/internal/plan"
)

// Ingress is where decrypted packets go on.
type Ingress uint8

// The choices; the numbers are those of the eBPF configuration.
const (
	// IngressUnderlay hands them to the ingress of the underlay device.
	IngressUnderlay Ingress = 0
	// IngressDevice leaves them on the WireGuard device.
	IngressDevice Ingress = 1
)

var ingressNames = [...]string{IngressUnderlay: "underlay", IngressDevice: "device"}

// String returns the name that the configuration uses.
func (i Ingress) String() string { return nameOf(ingressNames[:], uint8(i), "ingress") }

// MarshalText implements encoding.TextMarshaler.
func (i Ingress) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// UnmarshalText accepts what String returns.
func (i *Ingress) UnmarshalText(text []byte) error {
	number, err := numberOf(ingressNames[:], string(text), "ingress")
	if err == nil {
		*i = Ingress(number)
	}
	return err
}

// Oversize is what becomes of a packet that the tunnel does not carry whole and that nobody may cut. The
// choices differ for packets of local pods that are not to be fragmented; all others are sent in fragments.
type Oversize uint8

// The choices; the numbers are those of the eBPF configuration.
const (
	// OversizeAuto sends the packet, encrypted and then in fragments, and tells its sender what fits.
	OversizeAuto Oversize = 0
	// OversizeFragment sends the packet and tells nobody.
	OversizeFragment Oversize = 1
	// OversizeICMP tells the sender, and does not send the packet.
	OversizeICMP Oversize = 2
)

var oversizeNames = [...]string{OversizeAuto: "auto", OversizeFragment: "fragment", OversizeICMP: "icmp"}

// String returns the name that the configuration uses.
func (o Oversize) String() string { return nameOf(oversizeNames[:], uint8(o), "oversize") }

// MarshalText implements encoding.TextMarshaler.
func (o Oversize) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText accepts what String returns.
func (o *Oversize) UnmarshalText(text []byte) error {
	number, err := numberOf(oversizeNames[:], string(text), "oversize")
	if err == nil {
		*o = Oversize(number)
	}
	return err
}

func nameOf(names []string, number uint8, kind string) string {
	if int(number) < len(names) {
		return names[number]
	}
	return fmt.Sprintf("%s(%d)", kind, number)
}

func numberOf(names []string, text, kind string) (uint8, error) {
	for number, name := range names {
		if name == text {
			return uint8(number), nil
		}
	}
	return 0, fmt.Errorf("%s %q: one of %v", kind, text, names)
}

// Config is what the programs are told.
type Config struct {
	// Mark is the value, under MarkMask, of what WireGuard has sent and of what is handed back.
	Mark, MarkMask uint32
	// Port is the UDP port of the WireGuard device in slot 0; those of the others follow it.
	Port uint16
	// Tunnels are the indexes of the WireGuard devices by slot, 0 where there is none.
	Tunnels [plan.Slots]uint32
	// PrimaryUnderlay is the index of the underlay device for a source whose entry names none.
	PrimaryUnderlay uint32
	// InnerMTU is the largest packet in bytes, with its IP header, that the tunnel carries whole to every
	// peer; the entry of a peer may say less. 0: nobody said, and what no entry says is left alone.
	InnerMTU uint16
	Oversize Oversize
	// Exemptions says that there may be some; without, none is looked for.
	Exemptions bool
	Mode       cluster.Mode
	Ingress    Ingress
}

// Verdict is what becomes of a packet.
type Verdict uint8

// The verdicts; the numbers are those of the eBPF programs.
const (
	// Pass lets the packet go on to the next program, or on its way.
	Pass Verdict = 0
	// Drop ends its way.
	Drop Verdict = 1
	// Tunnel redirects it to the egress of the WireGuard device.
	Tunnel Verdict = 2
	// HandBack redirects it to the ingress of an underlay device.
	HandBack Verdict = 3
)

var verdictNames = [...]string{Pass: "pass", Drop: "drop", Tunnel: "tunnel", HandBack: "hand-back"}

// String returns the verdict in a word.
func (v Verdict) String() string { return nameOf(verdictNames[:], uint8(v), "verdict") }

// MarshalText implements encoding.TextMarshaler.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Decide judges a packet that is about to leave by an underlay device: the first table of the package
// comment, below the rows that Parse decides. A nil entry means that the address is unknown.
func Decide(p Packet, src, dst *plan.Entry, config Config) (Verdict, Reason) {
	switch {
	case p.looksEncrypted(config) && isLocal(src) && isNode(src):
		return Pass, ReasonEncrypted
	case p.isNeighbourDiscovery():
		return Pass, ReasonNeighbourDiscovery
	case dst == nil:
		return Pass, ReasonNotCluster
	case isLocal(dst):
		return Pass, ReasonLocalDestination
	case p.Exempt:
		return Pass, ReasonExempt
	case !dst.HasPair && isLocal(src) && p.isBootstrap(config):
		return Pass, ReasonBootstrap
	case !dst.HasPair:
		return config.unlessStrict(), ReasonNoPair
	case dst.Key == cluster.NoEncryption:
		return Pass, ReasonKeyZero
	case !isLocal(src):
		return config.unlessStrict(), ReasonSourceNotAllowed
	case config.Mode == cluster.ModeObserve:
		return Pass, ReasonWouldRedirect
	case !dst.Send && p.isBootstrap(config):
		return Pass, ReasonBootstrap
	case !dst.Send:
		return config.unlessStrict(), ReasonNotConfirmed
	case p.InClear:
		return Pass, ReasonBootstrap
	case config.Tunnels[dst.Slot] == 0:
		return config.unlessStrict(), ReasonNoTunnel
	}
	return Tunnel, ReasonRedirected
}

// decideIngress judges a packet that came in by an underlay device without Warren's mark.
func decideIngress(p Packet, src, dst *plan.Entry, config Config) (Verdict, Reason) {
	switch {
	case p.isNeighbourDiscovery():
		return Pass, ReasonNeighbourDiscovery
	case p.WireGuard && p.DstPort-config.Port < plan.Slots && (src == nil || dst == nil || isNode(dst)):
		return Pass, ReasonEncryptedIn
	case src == nil || dst == nil:
		return Pass, ReasonNotCluster
	case isLocal(src):
		return Pass, ReasonLocalSource
	case p.Exempt:
		return Pass, ReasonExempt
	case isNode(src) && p.Protocol == protocolUDP && p.Fragment == LaterFragment:
		return Pass, ReasonUDPFragmentIn
	case !src.HasPair && p.isBootstrap(config):
		return Pass, ReasonBootstrap
	case !src.HasPair:
		return config.unlessStrict(), ReasonNoPair
	case src.Key == cluster.NoEncryption, dst.HasPair && dst.Key == cluster.NoEncryption:
		return Pass, ReasonKeyZero
	case p.InClear, !src.Send && p.isBootstrap(config):
		return Pass, ReasonBootstrap
	case src.Enforce:
		return config.unlessStrict(), ReasonClearFromPeer
	}
	return Pass, ReasonClearFromPeer
}

// unlessStrict is the verdict on what only strict mode drops.
func (c Config) unlessStrict() Verdict {
	if c.Mode == cluster.ModeStrict {
		return Drop
	}
	return Pass
}

// isBootstrap is asked of packets of a peer that is not confirmed: only strict mode needs an exception.
func (p Packet) isBootstrap(config Config) bool { return p.Server && config.Mode == cluster.ModeStrict }

func (c Config) marked(mark uint32) bool { return mark&c.MarkMask == c.Mark }

// looksEncrypted is the part of "own WireGuard packet" that the packet itself shows.
func (p Packet) looksEncrypted(config Config) bool {
	if p.Protocol != protocolUDP || !config.marked(p.Mark) {
		return false
	}
	if p.Fragment == LaterFragment {
		return p.OwnDatagram
	}
	slot := p.SrcPort - config.Port
	return p.WireGuard && slot < plan.Slots && config.Tunnels[slot] != 0
}

// isNeighbourDiscovery: RFC 4861 wants hop limit 255, RFC 6980 forbids fragments.
func (p Packet) isNeighbourDiscovery() bool {
	return p.IPv6 && p.Protocol == protocolICMPv6 && p.Fragment == Whole &&
		p.ICMPType >= 133 && p.ICMPType <= 137 && p.HopLimit == 255
}

func isLocal(e *plan.Entry) bool { return e != nil && e.Flags&cluster.FlagLocal != 0 }

func isNode(e *plan.Entry) bool { return e != nil && e.Flags&cluster.FlagNode != 0 }
