package netdev

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The kinds that code branches on, as the kernel spells them in IFLA_INFO_KIND.
const (
	kindWireGuard = "wireguard"
	kindTun       = "tun"
	kindVeth      = "veth"
	kindBridge    = "bridge"
	kindVRF       = "vrf"
)

// Link is a network device with its addresses.
type Link struct {
	// Index is the interface index, unique in the network namespace and never 0.
	Index uint32
	Name  string
	// Kind is the driver's kind: "wireguard", "tun", "veth", "bridge", "bond", "vlan" …; empty
	// for hardware, virtio and loopback devices.
	Kind string
	// MTU in bytes, without the link-layer header.
	MTU int
	// MAC is nil for devices without link-layer addresses (L3, loopback).
	MAC net.HardwareAddr
	// L3 devices carry packets without an Ethernet header.
	L3 bool
	// Up is the administrative state, not the carrier.
	Up bool
	// Master is the index of the bridge, bond or VRF that the link is enslaved to; 0 is none.
	Master uint32
	// Addrs are the link's addresses with the length of their subnet, in the kernel's order: of
	// IPv4, the primary address comes first. IPv6 addresses have no zone.
	Addrs []netip.Prefix
	// Transient are those of Addrs that other machines must not be told: IPv6 addresses that are
	// temporary (RFC 8981), deprecated, or failed duplicate address detection.
	Transient []netip.Addr
}

// HasAddr reports whether the link carries addr.
func (l Link) HasAddr(addr netip.Addr) bool {
	return slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return p.Addr() == addr })
}

// Links lists all links of the namespace by index. It takes two dumps however many links there
// are: between the two an address may come or go, which Watch then reports.
func (n *Netdev) Links() ([]Link, error) {
	raw, err := dump(n.handle.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	addrs, err := dump(func() ([]netlink.Addr, error) { return n.handle.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	links := make([]Link, len(raw))
	for i := range raw {
		links[i] = linkOf(raw[i])
	}
	slices.SortFunc(links, func(a, b Link) int { return int(a.Index) - int(b.Index) })
	addAddresses(links, addrs)
	return links, nil
}

// linkOf translates all but the addresses, which come from a dump of their own.
func linkOf(raw netlink.Link) Link {
	attrs := raw.Attrs()
	link := Link{
		Index:  uint32(attrs.Index),
		Name:   attrs.Name,
		Kind:   kindOf(raw),
		MTU:    attrs.MTU,
		L3:     attrs.EncapType != "ether" && attrs.EncapType != "loopback",
		Up:     attrs.RawFlags&unix.IFF_UP != 0,
		Master: uint32(attrs.MasterIndex),
	}
	if !link.L3 {
		link.MAC = attrs.HardwareAddr
	}
	return link
}

// kindOf undoes the two names that the library makes up.
func kindOf(raw netlink.Link) string {
	switch kind := raw.Type(); kind {
	case "device":
		return ""
	case "tuntap":
		return kindTun
	default:
		return kind
	}
}

// addAddresses hands each address to its link; links must be ordered by index.
func addAddresses(links []Link, addrs []netlink.Addr) {
	for _, addr := range addrs {
		at, found := slices.BinarySearchFunc(links, addr.LinkIndex, func(l Link, index int) int { return int(l.Index) - index })
		prefix, ok := prefixOf(addr.IPNet)
		if !found || !ok {
			continue // the link went between the dumps, or the address is of a foreign family
		}
		links[at].Addrs = append(links[at].Addrs, prefix)
		if transient(prefix.Addr(), addr.Flags) {
			links[at].Transient = append(links[at].Transient, prefix.Addr())
		}
	}
}

// transient looks at IPv6 only: bit 0 is IFA_F_TEMPORARY there and IFA_F_SECONDARY with IPv4, where
// it says nothing about how long the address stays.
func transient(addr netip.Addr, flags int) bool {
	const unstable = unix.IFA_F_TEMPORARY | unix.IFA_F_DEPRECATED | unix.IFA_F_DADFAILED
	return addr.Is6() && flags&unstable != 0
}

// prefixOf keeps the host bits: 10.0.0.1/24 stays 10.0.0.1/24.
func prefixOf(ipnet *net.IPNet) (netip.Prefix, bool) {
	if ipnet == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(ipnet.IP)
	ones, bits := ipnet.Mask.Size()
	return netip.PrefixFrom(addr, ones), ok && bits == addr.BitLen()
}
