package netdev

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// ErrNoRoute: the kernel knows no way to the address (or a rule forbids it).
var ErrNoRoute = errors.New("no route")

// Route is how the kernel would send a packet now.
type Route struct {
	// Ifindex of the device the packet would leave by; the loopback for own addresses.
	Ifindex uint32
	// Source is the address the kernel would choose as the packet's source; invalid when the
	// kernel names none.
	Source netip.Addr
	// Gateway is invalid when the destination is on the link. It may be an IPv6 address for an
	// IPv4 destination (RFC 8950).
	Gateway netip.Addr
}

// RouteTo asks the kernel which way a locally made packet to addr would take, policy rules
// included. It sends nothing. Error: ErrNoRoute.
func (n *Netdev) RouteTo(addr netip.Addr) (Route, error) {
	addr = addr.Unmap()
	routes, err := n.handle.RouteGet(addr.AsSlice())
	if err != nil {
		// Unreachable, prohibit and blackhole routes and a missing one each have an errno of
		// their own; to a caller they are the same.
		return Route{}, fmt.Errorf("%w to %s: %w", ErrNoRoute, addr, err)
	}
	if len(routes) == 0 || routes[0].LinkIndex == 0 {
		return Route{}, fmt.Errorf("%w to %s", ErrNoRoute, addr)
	}
	route := Route{Ifindex: uint32(routes[0].LinkIndex), Gateway: gatewayOf(routes[0])}
	if source, ok := netip.AddrFromSlice(routes[0].Src); ok {
		route.Source = source.Unmap()
	}
	return route, nil
}

func gatewayOf(route netlink.Route) netip.Addr {
	if via, ok := route.Via.(*netlink.Via); ok {
		gateway, _ := netip.AddrFromSlice(via.Addr)
		return gateway
	}
	gateway, _ := netip.AddrFromSlice(route.Gw)
	return gateway.Unmap()
}
