package discovery

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Reach returns the addresses, in order and with the port, that a server's URL leads to; its scheme may be missing. A
// loopback address is left out, which others do not reach. Of a name that is not known, and of what is no URL, it
// returns none.
func Reach(ctx context.Context, server string) (list []netip.AddrPort) {
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	u, err := url.Parse(server)
	if err != nil {
		return nil
	}
	port, err := strconv.ParseUint(portOf(u), 10, 16)
	if err != nil {
		return nil
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return nil
	}
	for _, addr := range addrs {
		if addr = addr.Unmap().WithZone(""); !addr.IsLoopback() {
			list = append(list, netip.AddrPortFrom(addr, uint16(port)))
		}
	}
	slices.SortFunc(list, netip.AddrPort.Compare)
	return slices.Compact(list)
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "http":
		return "80"
	}
	return "443"
}
