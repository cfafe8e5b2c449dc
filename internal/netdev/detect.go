package netdev

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// Where the default routes lead is asked by the way to an address that nobody has: the ranges that
// RFC 5737 and RFC 3849 reserve for documentation. Nothing is sent there.
var elsewhere = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}

// DetectAddresses returns the node's own addresses for a configuration that names none: what
// the devices of the default routes carry, both families. routeTo is Netdev.RouteTo. Without a
// default route (or with one into a tunnel, a CNI device and the like) it is what the only device
// that can be an underlay carries; when several can, the error lists them, since a guess
// would publish an address that the others cannot reach.
//
// Only global unicast addresses count (private and unique local ones are), and no Transient ones.
// IPv4 comes before IPv6. Within a family the first address, which becomes the tunnel endpoint,
// is the one that the kernel itself would send from; addresses that are a subnet of their own
// (/32, /128) come last, since floating service addresses are of that shape.
func DetectAddresses(links []Link, routeTo func(netip.Addr) (Route, error)) ([]netip.Addr, error) {
	view := newView(links)
	var sources, others []netip.Addr
	for _, destination := range elsewhere {
		route, err := routeTo(destination)
		if err != nil {
			continue // no default route of this family
		}
		link, ok := view.byIndex[route.Ifindex]
		if !ok || link.Kind == kindTun || view.unfit(link) != "" {
			continue
		}
		if view.canBeSource(route.Source) {
			sources = append(sources, route.Source)
		}
		others = append(others, publishable(link)...)
	}
	if len(sources)+len(others) == 0 {
		candidates := view.candidates()
		if len(candidates) != 1 {
			return nil, fmt.Errorf("the node's own addresses are not clear: no default route leads to one, and not exactly one device "+
				"could be the underlay (%s); set `addresses:`", view.listCandidates())
		}
		others = publishable(candidates[0])
	}
	return uniqueByFamily(append(sources, others...)), nil
}

// canBeSource says whether the source that the kernel would use may be published. In a routed fabric
// it sits on the loopback or a dummy; it may also be a temporary address, which changes daily.
func (v view) canBeSource(source netip.Addr) bool {
	return v.misplaced(source) == nil && slices.ContainsFunc(v.links, func(link Link) bool {
		return slices.Contains(publishable(link), source)
	})
}

// publishable returns the addresses of a link that other machines may be told: IPv4 before IPv6, in
// each those that are a subnet of their own last. IPv4 keeps the kernel's order, primary first; of
// IPv6 the kernel puts the latest first, which would move the endpoint with every new address, so
// they are sorted.
func publishable(link Link) []netip.Addr {
	prefixes := slices.DeleteFunc(slices.Clone(link.Addrs), func(p netip.Prefix) bool {
		return !p.Addr().IsGlobalUnicast() || slices.Contains(link.Transient, p.Addr())
	})
	slices.SortStableFunc(prefixes, func(a, b netip.Prefix) int {
		if c := cmp.Compare(rank(a), rank(b)); c != 0 || a.Addr().Is4() {
			return c
		}
		return a.Addr().Compare(b.Addr())
	})
	addrs := make([]netip.Addr, len(prefixes))
	for i, p := range prefixes {
		addrs[i] = p.Addr()
	}
	return addrs
}

func rank(p netip.Prefix) int {
	rank := p.Addr().BitLen() // 32 or 128
	if p.IsSingleIP() {
		rank++
	}
	return rank
}

// uniqueByFamily puts IPv4 first and otherwise keeps the order of first mention.
func uniqueByFamily(addrs []netip.Addr) []netip.Addr {
	var unique []netip.Addr
	for _, addr := range addrs {
		if !slices.Contains(unique, addr) {
			unique = append(unique, addr)
		}
	}
	slices.SortStableFunc(unique, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })
	return unique
}
