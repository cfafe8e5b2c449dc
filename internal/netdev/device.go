package netdev

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Errors of the device functions that a caller branches on.
var (
	// ErrUnsupported: the running kernel cannot make a WireGuard device.
	ErrUnsupported = errors.New("this kernel has no WireGuard")
	// ErrOtherKind: a device of that name is there and is of a kind that Warren leaves alone.
	ErrOtherKind = errors.New("the name is taken by a device of another kind")
	// ErrNoLink: there is no device of that name.
	ErrNoLink = errors.New("no such device")
)

// EnsureWireGuard makes sure that a kernel WireGuard device of that name exists, with that MTU in
// bytes, and is up; keys, port and peers are not its business. A device that is there already
// is kept as it is but for MTU and state.
//
// Errors: ErrUnsupported when the kernel has no WireGuard; ErrOtherKind when the name belongs to
// something else, such as the TUN device of a userspace tunnel.
func (n *Netdev) EnsureWireGuard(name string, mtu int) (Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, mtu
	// The kernel looks at the name before the kind: EEXIST comes also where it knows no WireGuard.
	err := n.handle.LinkAdd(&netlink.Wireguard{LinkAttrs: attrs})
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return Link{}, fmt.Errorf("create WireGuard device %s: %w", name, ErrUnsupported)
	case err != nil && !errors.Is(err, unix.EEXIST):
		return Link{}, fmt.Errorf("create WireGuard device %s: %w", name, err)
	}
	if _, err := n.findKind(name, kindWireGuard); err != nil {
		return Link{}, err
	}
	return n.Prepare(name, mtu)
}

// tunQueue is how many packets wait for the process behind a TUN device. The kernel drops what comes when as many
// wait; the usual 500 are there in a moment in which the process waits for a processor.
const tunQueue = 4096

// Prepare gives an existing tunnel device, kernel WireGuard or TUN, its MTU in bytes and a TUN device a longer queue,
// keeps the kernel from giving it an IPv6 link-local address, and sets it up. It may be repeated.
//
// Without an address the kernel has nothing to say on the device: no router solicitation, no
// multicast report, no duplicate address detection ever enters the tunnel by itself.
func (n *Netdev) Prepare(name string, mtu int) (Link, error) {
	raw, err := n.find(name)
	if err != nil {
		return Link{}, err
	}
	if err := errors.Join(n.silence(raw), n.lengthen(raw)); err != nil {
		return Link{}, err
	}
	if err := n.SetMTU(name, mtu); err != nil {
		return Link{}, err
	}
	if err := n.SetUp(name); err != nil {
		return Link{}, err
	}
	if raw, err = n.find(name); err != nil {
		return Link{}, err
	}
	return linkOf(raw), nil
}

// silence turns link-local addresses off, which has to come before the device is up. On one that is up
// it was done before, and doing it again would notify every watcher: an agent that repeats itself
// whenever a device changes would never rest.
func (n *Netdev) silence(raw netlink.Link) error {
	if raw.Attrs().Flags&net.FlagUp != 0 {
		return nil
	}
	// EAFNOSUPPORT: IPv6 is off, in the kernel or (with an MTU below 1280) on the device.
	err := n.handle.LinkSetIP6AddrGenMode(raw, nl.IN6_ADDR_GEN_MODE_NONE)
	if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
		return fmt.Errorf("turn off link-local addresses on %s: %w", raw.Attrs().Name, err)
	}
	return nil
}

// lengthen gives a TUN device its queue.
func (n *Netdev) lengthen(raw netlink.Link) error {
	if kindOf(raw) != kindTun || raw.Attrs().TxQLen == tunQueue {
		return nil
	}
	if err := n.handle.LinkSetTxQLen(raw, tunQueue); err != nil {
		return fmt.Errorf("set the queue of %s to %d packets: %w", raw.Attrs().Name, tunQueue, err)
	}
	return nil
}

// SetMTU sets the MTU in bytes; the same value again changes nothing. Error: ErrNoLink.
func (n *Netdev) SetMTU(name string, mtu int) error {
	raw, err := n.find(name)
	if err != nil {
		return err
	}
	if raw.Attrs().MTU == mtu {
		return nil // the kernel would notify every watcher all the same
	}
	if err := n.handle.LinkSetMTU(raw, mtu); err != nil {
		return fmt.Errorf("set the MTU of %s to %d: %w", name, mtu, err)
	}
	return nil
}

// SetUp brings the device up; it may be up already. Error: ErrNoLink.
func (n *Netdev) SetUp(name string) error {
	raw, err := n.find(name)
	if err != nil {
		return err
	}
	if err := n.handle.LinkSetUp(raw); err != nil {
		return fmt.Errorf("bring up %s: %w", name, err)
	}
	return nil
}

// Delete removes a tunnel device; one that is gone is no error. Only WireGuard and TUN devices are
// removed, so that a mistyped name never takes the machine off the network: ErrOtherKind.
func (n *Netdev) Delete(name string) error {
	raw, err := n.findKind(name, kindWireGuard, kindTun)
	if errors.Is(err, ErrNoLink) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := n.handle.LinkDel(raw); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return nil
}

// findKind fails with a remedy unless the device is of one of the kinds.
func (n *Netdev) findKind(name string, kinds ...string) (netlink.Link, error) {
	raw, err := n.find(name)
	if err != nil {
		return nil, err
	}
	if slices.Contains(kinds, kindOf(raw)) {
		return raw, nil
	}
	return nil, fmt.Errorf("%w: %s is a %s device, not %s; choose another device name, or remove it (ip link delete %[2]s)",
		ErrOtherKind, name, cmp.Or(kindOf(raw), "hardware"), kinds[0])
}

func (n *Netdev) find(name string) (netlink.Link, error) {
	raw, err := n.handle.LinkByName(name)
	if missing := (netlink.LinkNotFoundError{}); errors.As(err, &missing) {
		return nil, fmt.Errorf("%w: %s", ErrNoLink, name)
	}
	if err != nil {
		return nil, fmt.Errorf("look up device %s: %w", name, err)
	}
	return raw, nil
}
