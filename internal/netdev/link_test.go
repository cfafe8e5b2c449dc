package netdev

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

var equateNetip = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

func TestLinks(t *testing.T) {
	n := namespace(t)
	bridge := n.add(t, &netlink.Bridge{LinkAttrs: attrs("br0")})
	n.addVeth(t, "eth0", "wire")
	n.add(t, &netlink.Tuntap{LinkAttrs: attrs("tun0"), Mode: netlink.TUNTAP_MODE_TUN})
	if err := n.handle.LinkSetMaster(n.raw(t, "wire"), bridge); err != nil {
		t.Fatal(err)
	}
	if err := n.SetMTU("eth0", 1400); err != nil {
		t.Fatal(err)
	}
	n.addr(t, "eth0", "10.0.0.1/24")
	n.addr(t, "eth0", "10.0.0.9/32")
	n.addr(t, "eth0", "fd00::1/64")
	n.addr(t, "br0", "10.1.0.1/16")

	got, err := n.Links()
	if err != nil {
		t.Fatal(err)
	}
	want := []Link{
		{Name: "lo", MTU: 65536},
		{Name: "br0", Kind: "bridge", MTU: 1500, Up: true, Addrs: prefixes("10.1.0.1/16")},
		{Name: "wire", Kind: "veth", MTU: 1500, Up: true, Master: n.link(t, "br0").Index},
		{Name: "eth0", Kind: "veth", MTU: 1400, Up: true, Addrs: prefixes("10.0.0.1/24", "10.0.0.9/32", "fd00::1/64")},
		{Name: "tun0", Kind: "tun", MTU: 1500, L3: true, Up: true},
	}
	options := cmp.Options{
		equateNetip,
		cmpopts.IgnoreFields(Link{}, "Index", "MAC"), // chosen by the kernel, as are link-local addresses
		cmp.Transformer("withoutLinkLocal", withoutLinkLocal),
	}
	if diff := cmp.Diff(want, got, options); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
	for _, link := range got {
		if hasMAC := link.Name != "lo" && link.Name != "tun0"; (link.MAC != nil) != hasMAC || link.Index == 0 {
			t.Errorf("%s has MAC %v and index %d", link.Name, link.MAC, link.Index)
		}
	}
}

// withoutLinkLocal returns a type of its own: a cmp.Transformer must not return what it takes.
func withoutLinkLocal(list []netip.Prefix) (rest struct{ Prefixes []string }) {
	for _, p := range list {
		if !p.Addr().IsLinkLocalUnicast() {
			rest.Prefixes = append(rest.Prefixes, p.String())
		}
	}
	return rest
}

func TestTransientAddresses(t *testing.T) {
	tests := []struct {
		name  string
		addr  string
		flags int
		want  bool
	}{
		{"plain IPv6", "fd00::1", 0, false},
		{"temporary", "fd00::1", unix.IFA_F_TEMPORARY, true},
		{"deprecated", "fd00::1", unix.IFA_F_DEPRECATED, true},
		{"duplicate", "fd00::1", unix.IFA_F_DADFAILED | unix.IFA_F_PERMANENT, true},
		{"still being checked for duplicates", "fd00::1", unix.IFA_F_TENTATIVE, false},
		{"IPv4 secondary, which is the bit of temporary", "10.0.0.2", unix.IFA_F_SECONDARY, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := transient(netip.MustParseAddr(test.addr), test.flags); got != test.want {
				t.Errorf("transient(%s, %#x) = %v, want %v", test.addr, test.flags, got, test.want)
			}
		})
	}
}

// A deprecated address is one whose preferred lifetime is over while it is still valid.
func TestLinksMarksDeprecatedAddress(t *testing.T) {
	n := namespace(t)
	n.addVeth(t, "eth0", "wire")
	n.addr(t, "eth0", "fd00::1/64")
	deprecated := address("fd00::2/64")
	deprecated.ValidLft, deprecated.PreferedLft = 3600, 0
	if err := n.handle.AddrAdd(n.raw(t, "eth0"), deprecated); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(addrs("fd00::2"), n.link(t, "eth0").Transient, equateNetip); diff != "" {
		t.Errorf("transient addresses (-want +got):\n%s", diff)
	}
}

// The kinds that the rules for underlays speak of are spelled as the kernel spells them.
func TestLinkKinds(t *testing.T) {
	vlan := func(n *Netdev) netlink.Link {
		n.addVeth(t, "eth0", "wire")
		attrs := attrs("x")
		attrs.ParentIndex = int(n.link(t, "eth0").Index)
		return &netlink.Vlan{LinkAttrs: attrs, VlanId: 100}
	}
	tests := []struct {
		kind string
		link func(*Netdev) netlink.Link
	}{
		{"bridge", func(*Netdev) netlink.Link { return &netlink.Bridge{LinkAttrs: attrs("x")} }},
		{"veth", func(*Netdev) netlink.Link { return &netlink.Veth{LinkAttrs: attrs("x"), PeerName: "y"} }},
		{"tun", func(*Netdev) netlink.Link {
			return &netlink.Tuntap{LinkAttrs: attrs("x"), Mode: netlink.TUNTAP_MODE_TUN}
		}},
		{"vlan", vlan},
		{"bond", func(*Netdev) netlink.Link { return netlink.NewLinkBond(attrs("x")) }},
		{"dummy", func(*Netdev) netlink.Link { return &netlink.Dummy{LinkAttrs: attrs("x")} }},
		{"vxlan", func(*Netdev) netlink.Link { return &netlink.Vxlan{LinkAttrs: attrs("x"), VxlanId: 1, Port: 4789} }},
		{"geneve", func(*Netdev) netlink.Link {
			return &netlink.Geneve{LinkAttrs: attrs("x"), ID: 1, Remote: addrs("10.0.0.2")[0].AsSlice()}
		}},
		{"vrf", func(*Netdev) netlink.Link { return &netlink.Vrf{LinkAttrs: attrs("x"), Table: 100} }},
	}
	for _, test := range tests {
		t.Run(test.kind, func(t *testing.T) {
			n := namespace(t)
			n.add(t, test.link(n))
			if got := n.link(t, "x").Kind; got != test.kind {
				t.Errorf("kind %q, want %q", got, test.kind)
			}
		})
	}
}
