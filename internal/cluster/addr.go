package cluster

import (
	"fmt"
	"net/netip"
)

// HostPrefix returns the /32 or /128 of an address, unmapped.
func HostPrefix(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	return netip.PrefixFrom(addr, addr.BitLen())
}

// CanonicalPrefix returns p masked and unmapped: the one spelling that maps use as a key.
func CanonicalPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked()
}

// ValidUnicast accepts an address that another machine can send to: not unspecified, loopback,
// multicast, link-local or zoned, and not IPv4 in IPv6 notation.
func ValidUnicast(addr netip.Addr) error {
	switch {
	case !addr.IsValid():
		return fmt.Errorf("not an address")
	case addr.Is4In6():
		return fmt.Errorf("%s is IPv4 in IPv6 notation; write %s", addr, addr.Unmap())
	case addr.Zone() != "":
		return fmt.Errorf("%s has a zone; zones mean nothing to other machines", addr)
	case addr.IsUnspecified(), addr.IsLoopback(), addr.IsMulticast(), addr.IsLinkLocalUnicast():
		return fmt.Errorf("%s cannot be reached from other machines", addr)
	case addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("%s is the broadcast address", addr)
	}
	return nil
}

// ValidPrefix accepts a masked unicast prefix that does not swallow a whole family.
func ValidPrefix(p netip.Prefix) error {
	switch {
	case !p.IsValid():
		return fmt.Errorf("not a prefix")
	case p.Bits() == 0:
		return fmt.Errorf("%s would give every address to one node", p)
	case p != p.Masked():
		return fmt.Errorf("%s has bits after its length; write %s", p, p.Masked())
	}
	return ValidUnicast(p.Addr())
}
