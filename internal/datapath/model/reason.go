package model

import (
	"fmt"
	"slices"
)

// Program is one of the three eBPF programs.
type Program uint8

// The programs; the numbers are those of the counters in the kernel.
const (
	ProgramToNetdev   Program = 0 // egress of underlay devices
	ProgramFromNetdev Program = 1 // ingress of underlay devices
	ProgramFromTunnel Program = 2 // ingress of the WireGuard device
)

var programNames = [...]string{
	ProgramToNetdev:   "to_netdev",
	ProgramFromNetdev: "from_netdev",
	ProgramFromTunnel: "from_tunnel",
}

// Programs returns the three programs in the order of their numbers.
func Programs() []Program { return []Program{ProgramToNetdev, ProgramFromNetdev, ProgramFromTunnel} }

// String returns the name of the program in the C source.
func (p Program) String() string {
	if int(p) < len(programNames) {
		return programNames[p]
	}
	return fmt.Sprintf("program(%d)", uint8(p))
}

// MarshalText implements encoding.TextMarshaler.
func (p Program) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Reason is why a packet left a program as it did: the counter, the metric's label and the text
// of explain. What it means for the packet depends on the mode; see the package comment.
type Reason uint8

// MaxReason is the number of reasons that the counters in the kernel have room for.
const MaxReason = 64

// The reasons. The counters in the kernel outlive the agent: numbers are never given to
// another reason, new ones are added at the end.
const (
	ReasonNotIP              Reason = 1
	ReasonMalformed          Reason = 2
	ReasonVLANTooDeep        Reason = 3
	ReasonEncrypted          Reason = 4
	ReasonNeighbourDiscovery Reason = 5
	ReasonNotCluster         Reason = 6
	ReasonLocalDestination   Reason = 7
	ReasonNoPair             Reason = 8
	ReasonKeyZero            Reason = 9
	ReasonSourceNotAllowed   Reason = 10
	ReasonNoTunnel           Reason = 11
	ReasonRedirected         Reason = 12
	ReasonWouldRedirect      Reason = 13
	ReasonWouldDrop          Reason = 14
	ReasonHelperFailed       Reason = 15
	ReasonHandedBack         Reason = 16
	ReasonEncryptedIn        Reason = 17
	ReasonUDPFragmentIn      Reason = 18
	ReasonClearFromPeer      Reason = 19
	ReasonLocalSource        Reason = 20
	ReasonDecrypted          Reason = 21
	ReasonLeftOnDevice       Reason = 22
	ReasonNoUnderlay         Reason = 23
	ReasonRecut              Reason = 24
	ReasonOversize           Reason = 25
	ReasonTooBigTold         Reason = 26
	ReasonTooBigRefused      Reason = 27
	ReasonProbe              Reason = 28
	ReasonNotConfirmed       Reason = 29
	ReasonBootstrap          Reason = 30
	ReasonExempt             Reason = 31
)

type reasonText struct {
	name string
	// description is one line: what the packet was, and what becomes of it.
	description string
	// programs that give this reason.
	programs []Program
	// perPeer: counted by peer as well.
	perPeer bool
}

var (
	onUnderlay  = []Program{ProgramToNetdev, ProgramFromNetdev}
	onEgress    = []Program{ProgramToNetdev}
	onIngress   = []Program{ProgramFromNetdev}
	onTunnel    = []Program{ProgramFromTunnel}
	onAll       = Programs()
	onRedirects = []Program{ProgramToNetdev, ProgramFromTunnel}
)

// reasonTexts has everything there is to say about a reason; bpf/reason.h is rendered from it.
var reasonTexts = [...]reasonText{
	ReasonNotIP:              {"not_ip", "neither IPv4 nor IPv6, such as ARP; passes", onAll, false},
	ReasonMalformed:          {"malformed", "IP header cut short or wrong, so that nobody can say where it goes; dropped on egress", onAll, false},
	ReasonVLANTooDeep:        {"vlan_too_deep", "more than two VLAN tags in the payload; passes, in strict mode dropped", onUnderlay, false},
	ReasonEncrypted:          {"encrypted", "sent by this node's WireGuard; passes", onEgress, false},
	ReasonNeighbourDiscovery: {"neighbour_discovery", "IPv6 neighbour discovery, which stays outside the tunnel; passes", onUnderlay, false},
	ReasonNotCluster:         {"not_cluster", "not between addresses of the cluster; passes", onUnderlay, false},
	ReasonLocalDestination:   {"local_destination", "to an address of this node or behind it; passes", onEgress, false},
	ReasonNoPair:             {"no_pair", "in the cluster, but nobody said how it is reached; in clear, in strict mode dropped", onUnderlay, true},
	ReasonKeyZero:            {"key_zero", "in the cluster, and configured not to be encrypted; in clear", onUnderlay, true},
	ReasonSourceNotAllowed:   {"source_not_allowed", "to a peer, from an address that is not this node's, which the peer would refuse; in clear, in strict mode dropped", onEgress, true},
	ReasonNoTunnel:           {"no_tunnel", "to a peer, while this node has no WireGuard device; in clear, in strict mode dropped", onEgress, true},
	ReasonRedirected:         {"redirected", "to a peer; given to the WireGuard device", onEgress, false},
	ReasonWouldRedirect:      {"would_redirect", "observe mode: to a peer, in clear; other modes would encrypt it", onEgress, true},
	ReasonWouldDrop:          {"would_drop", "observe mode: malformed, passes; other modes would drop it", onEgress, false},
	ReasonHelperFailed:       {"helper_failed", "the kernel could not change the packet; dropped on egress, left on the WireGuard device on ingress", onRedirects, true},
	ReasonHandedBack:         {"handed_back", "decrypted before and handed back to this device; passes, its mark is cleared", onIngress, false},
	ReasonEncryptedIn:        {"encrypted_in", "a WireGuard message for this node's port; passes", onIngress, false},
	ReasonUDPFragmentIn:      {"udp_fragment_in", "later fragment of a UDP datagram from a machine of the cluster, which is worth nothing without its first fragment, and that is judged; passes", onIngress, false},
	ReasonClearFromPeer:      {"clear_from_peer", "claims to come from a peer, in clear, though it should have been encrypted; passes, in strict mode dropped once the peer is known to encrypt", onIngress, true},
	ReasonLocalSource:        {"local_source", "came in with an address of this node or behind it as its source; passes", onIngress, false},
	ReasonDecrypted:          {"decrypted", "decrypted, and handed back to the ingress of the underlay device", onTunnel, false},
	ReasonLeftOnDevice:       {"left_on_device", "decrypted, and left on the WireGuard device as configured", onTunnel, false},
	ReasonNoUnderlay:         {"no_underlay", "decrypted, and left on the WireGuard device because no underlay device is known", onTunnel, false},
	ReasonRecut:              {"recut", "to a peer; TCP segments too large for the tunnel, made smaller and given to the WireGuard device", onEgress, false},
	ReasonOversize:           {"oversize", "to a peer; larger than the tunnel carries whole, given to the WireGuard device, which sends it in fragments", onEgress, true},
	ReasonTooBigTold:         {"too_big_told", "from a local pod to a peer; larger than the tunnel carries whole, sent in fragments, and the pod was told by ICMP what fits", onEgress, true},
	ReasonTooBigRefused:      {"too_big_refused", "from a local pod to a peer; larger than the tunnel carries whole, not sent, and the pod was told by ICMP what fits", onEgress, true},
	ReasonProbe:              {"probe", "a probe of a peer that came through the tunnel; handed to the agent", onTunnel, false},
	ReasonNotConfirmed:       {"not_confirmed", "to a peer that has not proved yet that it can decrypt; in clear, in strict mode dropped", onEgress, true},
	ReasonBootstrap:          {"bootstrap", "TCP between the port of an API server or etcd and a node that is not confirmed yet (strict mode), or that began it in clear since it answers no more; in clear", onUnderlay, true},
	ReasonExempt:             {"exempt", "between addresses of the cluster, and exempted by the configuration; in clear", onUnderlay, true},
}

// Reasons returns every reason in the order of their numbers.
func Reasons() []Reason {
	var all []Reason
	for r := range reasonTexts {
		if Reason(r).known() {
			all = append(all, Reason(r))
		}
	}
	return all
}

func (r Reason) known() bool { return int(r) < len(reasonTexts) && reasonTexts[r].name != "" }

// String returns the snake_case name that counters, metrics and JSON use.
func (r Reason) String() string {
	if r.known() {
		return reasonTexts[r].name
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// MarshalText implements encoding.TextMarshaler.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Description returns one line for people: what the packet was, and what becomes of it.
func (r Reason) Description() string {
	if r.known() {
		return reasonTexts[r].description
	}
	return "a reason of another version of Warren"
}

// Programs returns the programs that give this reason.
func (r Reason) Programs() []Program {
	if r.known() {
		return slices.Clone(reasonTexts[r].programs)
	}
	return nil
}

// PerPeer reports whether the packets are also counted by peer: what leaves in clear to a peer, comes in
// clear from one, is dropped on the way to one, or does not fit into its tunnel.
func (r Reason) PerPeer() bool { return r.known() && reasonTexts[r].perPeer }
