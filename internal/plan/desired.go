package plan

import (
	"fmt"
	"net/netip"

	"warren/internal/cluster"
)

// Device is the WireGuard device of this node. The private key is not here: it never leaves the
// agent and the driver.
type Device struct {
	// Name of the network device, "warren0".
	Name string
	// Port is the UDP port the socket is bound to.
	Port uint16
	// Mark is set on every packet the socket sends (its value, without mask).
	Mark uint32
	// MTU of the device in bytes.
	MTU int
}

// Peer is one WireGuard peer, known by its public key.
type Peer struct {
	Key cluster.PublicKey
	// Node the key belongs to, for logs and tables.
	Node cluster.NodeID
	// Epoch of the key, which says in which slots the peer is.
	Epoch uint32
	// Endpoint is pinned: set again when WireGuard roams away from it.
	Endpoint netip.AddrPort
}

// In returns the peer as the slot's device has it.
func (p Peer) In(slot Slot) Peer {
	p.Endpoint = netip.AddrPortFrom(p.Endpoint.Addr(), slot.PeerPort(p.Endpoint.Port()))
	return p
}

// Entry is what the datapath knows about a prefix.
type Entry struct {
	// Identity is the number from package identity; 0 is unknown.
	Identity uint32
	// Endpoint is the underlay address of the node that the prefix lives on; invalid when the
	// entry has no pair.
	Endpoint netip.Addr
	// Key is the number of the key that node decrypts with; 0 means "do not encrypt".
	Key cluster.KeyID
	// Flags: FlagLocal marks this node's own addresses and prefixes, FlagNode a machine's address.
	Flags cluster.Flags
	// HasPair says that Endpoint and Key are an opinion; without it the prefix is known but
	// nobody said how to reach it.
	HasPair bool
	// Underlay is the index of the underlay device by which the endpoint is reached; 0 is the
	// primary one. Decrypted packets from the prefix are handed back to the ingress of that device.
	Underlay uint32
	// MTU is the largest packet, in bytes with its IP header, that the tunnel carries whole to the
	// endpoint; 0 is the device's MTU.
	MTU uint16
	// Send says that the peer has proved that it decrypts: packets to it are encrypted.
	Send bool
	// Enforce says that the peer encrypts all that it sends to this node: in strict mode what comes
	// from it in clear is refused.
	Enforce bool
	// Slot of the device by which packets to it are encrypted.
	Slot Slot
	// Silent says that the prefix is the address of a machine that used to answer through the tunnel and does not: it
	// may have lost its key, and may begin connections to an API server of this node in clear.
	Silent bool
}

// String returns the entry in one line, for golden tests and debug logs.
func (e Entry) String() string {
	return fmt.Sprintf("identity %d endpoint %s key %d flags %d mtu %d send %t enforce %t slot %d silent %t",
		e.Identity, e.Endpoint, e.Key, e.Flags, e.MTU, e.Send, e.Enforce, e.Slot, e.Silent)
}

// Path is what this node has found out about the way to a peer, in the terms of Entry.
type Path struct {
	MTU     uint16
	Send    bool
	Enforce bool
	Slot    Slot
	Silent  bool
}
