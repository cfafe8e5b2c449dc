package netdev

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Injector gives whole IPv6 packets to a device, as if the kernel had routed them there: without a route, an
// address, a firewall or IPv6 itself on the machine having a say. It is safe for concurrent use.
type Injector struct {
	fd int
	to unix.SockaddrLinklayer
}

// OpenInjector opens a packet socket for an L3 device, such as WireGuard or TUN, in the calling thread's network
// namespace. It never receives anything, and outlives a device that goes down and up again.
func OpenInjector(ifindex uint32) (*Injector, error) {
	// Protocol 0: the kernel hooks such a socket into no device (packet(7)).
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket for device %d: %w", ifindex, err)
	}
	return &Injector{fd: fd, to: unix.SockaddrLinklayer{Ifindex: int(ifindex), Protocol: bigEndian(unix.ETH_P_IPV6)}}, nil
}

// Send gives one packet, IPv6 header first, to the device. It does not wait: a full queue is an error.
//
// Errors: EMSGSIZE when the packet is larger than the device's MTU, ENETDOWN while the device is down, ENXIO or
// ENODEV when it is gone, EAGAIN or ENOBUFS when the queue is full, all wrapped.
func (i *Injector) Send(packet []byte) error {
	to := i.to // Sendto writes into it
	if err := unix.Sendto(i.fd, packet, unix.MSG_DONTWAIT, &to); err != nil {
		return fmt.Errorf("send %d bytes through device %d: %w", len(packet), i.to.Ifindex, err)
	}
	return nil
}

// Close releases the socket; Send must not be called any more.
func (i *Injector) Close() error { return unix.Close(i.fd) }

// bigEndian returns a protocol number as the kernel wants it in a socket address.
func bigEndian(protocol uint16) uint16 { return protocol>>8 | protocol<<8 }
