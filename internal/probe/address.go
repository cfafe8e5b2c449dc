package probe

import (
	"crypto/sha256"
	"net/netip"

	"warren/internal/cluster"
)

// Prefix has the probe addresses of all keys. It is link-local, so that no router and no route of a machine
// ever knows it, and far from fe80::/64, so that no device has an address of it.
var Prefix = netip.MustParsePrefix("fe80:7761:7272:656e::/64")

// label separates this use of a hash over a key from any other.
const label = "warren probe address\x00"

// Address returns the address of the device with this key. Nobody has to publish it, and the device's peers
// accept it from that key alone: who sends a probe is as certain as who encrypted it.
func Address(key cluster.PublicKey) netip.Addr {
	sum := sha256.Sum256(append([]byte(label), key[:]...))
	addr := Prefix.Addr().As16()
	copy(addr[8:], sum[:8])
	return netip.AddrFrom16(addr)
}
