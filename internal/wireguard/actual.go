package wireguard

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"warren/internal/cluster"
	"warren/internal/plan"
)

// Engine is what does the encryption.
type Engine uint8

// The engines. The zero value is not one.
const (
	Kernel    Engine = iota + 1 // the kernel's WireGuard
	Userspace                   // a tunnel process (package userspace)
)

// String returns "kernel" or "userspace".
func (e Engine) String() string {
	switch e {
	case Kernel:
		return "kernel"
	case Userspace:
		return "userspace"
	}
	return fmt.Sprintf("engine(%d)", uint8(e))
}

// MarshalText implements encoding.TextMarshaler.
func (e Engine) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// Actual is the state of a WireGuard device. The private key is not in it.
type Actual struct {
	// PublicKey is zero while the device has no private key.
	PublicKey cluster.PublicKey
	// Port is the UDP port, 0 while the device has no socket.
	Port uint16
	// Mark is the fwmark of outgoing packets, 0 for none.
	Mark   uint32
	Engine Engine
	// Peers are sorted by key.
	Peers []PeerState
}

// PeerState is one peer of a device.
type PeerState struct {
	// Peer has the key and the endpoint; the endpoint is invalid when WireGuard knows none, and
	// the node is always zero: the device does not know it.
	Peer plan.Peer
	// AllowedIPs are sorted as plan.ComparePrefixes does.
	AllowedIPs []netip.Prefix
	// LastHandshake is zero when there was none since the peer was added.
	LastHandshake time.Time
	// Rx and Tx count the bytes of the peer's UDP payloads since it was added.
	Rx, Tx uint64
}

func actualOf(raw *wgtypes.Device) Actual {
	actual := Actual{Port: uint16(raw.ListenPort), Mark: uint32(raw.FirewallMark)}
	if raw.PrivateKey != (wgtypes.Key{}) { // wgctrl computes a public key for the zero key, too
		actual.PublicKey = cluster.PublicKey(raw.PublicKey)
	}
	switch raw.Type {
	case wgtypes.LinuxKernel:
		actual.Engine = Kernel
	case wgtypes.Userspace:
		actual.Engine = Userspace
	}
	for _, peer := range raw.Peers {
		actual.Peers = append(actual.Peers, peerStateOf(peer))
	}
	slices.SortFunc(actual.Peers, func(a, b PeerState) int { return bytes.Compare(a.Peer.Key[:], b.Peer.Key[:]) })
	return actual
}

func peerStateOf(raw wgtypes.Peer) PeerState {
	peer := PeerState{
		Peer:          plan.Peer{Key: cluster.PublicKey(raw.PublicKey)},
		LastHandshake: raw.LastHandshakeTime,
		Rx:            uint64(raw.ReceiveBytes),
		Tx:            uint64(raw.TransmitBytes),
	}
	if raw.Endpoint != nil {
		endpoint := raw.Endpoint.AddrPort()
		peer.Peer.Endpoint = netip.AddrPortFrom(endpoint.Addr().Unmap(), endpoint.Port())
	}
	for _, network := range raw.AllowedIPs {
		peer.AllowedIPs = append(peer.AllowedIPs, prefixOf(network))
	}
	slices.SortFunc(peer.AllowedIPs, plan.ComparePrefixes)
	return peer
}

func prefixOf(network net.IPNet) netip.Prefix {
	addr, _ := netip.AddrFromSlice(network.IP) // wgctrl gives 4 or 16 bytes
	bits, _ := network.Mask.Size()
	return cluster.CanonicalPrefix(netip.PrefixFrom(addr, bits))
}

func networkOf(prefix netip.Prefix) net.IPNet {
	prefix = cluster.CanonicalPrefix(prefix)
	return net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}
