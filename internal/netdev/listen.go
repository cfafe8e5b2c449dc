package netdev

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Accepts reports whether this machine listens at the server's end of a TCP connection and has none between the two ends,
// in whatever state. It reads the list of all TCP sockets.
func Accepts(server, client netip.AddrPort) (bool, error) {
	listens := false
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		sockets, err := netlink.SocketDiagTCP(family)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // others come and go meanwhile
			return false, fmt.Errorf("list the TCP sockets: %w", err)
		}
		for _, socket := range sockets {
			local, remote := end(socket.ID.Source, socket.ID.SourcePort), end(socket.ID.Destination, socket.ID.DestinationPort)
			if local == server && remote == client {
				return false, nil
			}
			listens = listens || socket.State == netlink.TCP_LISTEN && covers(local, server)
		}
	}
	return listens, nil
}

func end(ip net.IP, port uint16) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr.Unmap(), port)
}

// covers reports whether what comes to an address and port comes to a listener. One of all IPv6 addresses is taken for
// one of IPv4 as well, which the list does not say.
func covers(listener, at netip.AddrPort) bool {
	every := listener.Addr() == netip.IPv6Unspecified() || listener.Addr() == netip.IPv4Unspecified() && at.Addr().Is4()
	return listener.Port() == at.Port() && (every || listener.Addr() == at.Addr())
}
