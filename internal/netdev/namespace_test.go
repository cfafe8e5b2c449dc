package netdev

import (
	"errors"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namespace moves the test into a network namespace of its own, without a name, and opens it. The
// kernel removes it, with all that was made in it, when the test ends.
func namespace(t *testing.T) *Netdev {
	t.Helper()
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		t.Fatalf("get the network namespace: %v", err)
	}
	inner, err := netns.New()
	if err != nil {
		runtime.UnlockOSThread()
		unprivileged(t, "make a network namespace", err)
	}
	t.Cleanup(func() {
		inner.Close()
		if err := netns.Set(home); err != nil {
			t.Errorf("return to the network namespace: %v", err) // the thread stays locked, and dies
			return
		}
		home.Close()
		runtime.UnlockOSThread()
	})
	n, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// unprivileged skips the test for want of a privilege; in CI that is a failure.
func unprivileged(t *testing.T, what string, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" || !errors.Is(err, unix.EPERM) {
		t.Fatalf("%s: %v", what, err)
	}
	t.Skipf("%s: %v (run as root)", what, err)
}

// add makes a link and sets it up. Kernels are built with different kinds: one that this kernel has
// not skips the test, and runs in the virtual machines of test/vm.
func (n *Netdev) add(t *testing.T, link netlink.Link) netlink.Link {
	t.Helper()
	err := n.handle.LinkAdd(link)
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skipf("this kernel has no %s devices", link.Type())
	}
	if err != nil {
		t.Fatalf("add %s: %v", link.Attrs().Name, err)
	}
	if err := n.SetUp(link.Attrs().Name); err != nil {
		t.Fatal(err)
	}
	return link
}

// addVeth makes a pair, both ends up, and returns the first.
func (n *Netdev) addVeth(t *testing.T, name, peer string) Link {
	t.Helper()
	n.add(t, &netlink.Veth{LinkAttrs: attrs(name), PeerName: peer})
	if err := n.SetUp(peer); err != nil {
		t.Fatal(err)
	}
	return n.link(t, name)
}

// addr gives a link an address at once, without duplicate address detection.
func (n *Netdev) addr(t *testing.T, name, prefix string) {
	t.Helper()
	if err := n.handle.AddrAdd(n.raw(t, name), address(prefix)); err != nil {
		t.Fatalf("add %s to %s: %v", prefix, name, err)
	}
}

func address(prefix string) *netlink.Addr {
	addr, err := netlink.ParseAddr(prefix)
	if err != nil {
		panic(err)
	}
	addr.Flags = unix.IFA_F_NODAD
	return addr
}

func (n *Netdev) raw(t *testing.T, name string) netlink.Link {
	t.Helper()
	raw, err := n.handle.LinkByName(name)
	if err != nil {
		t.Fatalf("look up %s: %v", name, err)
	}
	return raw
}

// link returns one link as Links shows it.
func (n *Netdev) link(t *testing.T, name string) Link {
	t.Helper()
	links, err := n.Links()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if link.Name == name {
			return link
		}
	}
	t.Fatalf("no link %s among %v", name, links)
	return Link{}
}

func attrs(name string) netlink.LinkAttrs {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	return attrs
}

// addrs reads addresses for tables.
func addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

// prefixes reads prefixes for tables.
func prefixes(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// openTun makes a TUN device as a userspace tunnel does: it has a carrier and lives until the test ends.
func openTun(t *testing.T, name string) *os.File {
	t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open /dev/net/tun: %v", err)
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		t.Fatal(err)
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		t.Fatalf("make %s: %v", name, err)
	}
	file := os.NewFile(uintptr(fd), "/dev/net/tun") // only now: without a device it cannot be polled
	t.Cleanup(func() { file.Close() })
	return file
}
