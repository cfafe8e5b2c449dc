package userspace_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/conn"

	"warren/internal/wireguard/userspace"
	"warren/internal/wireguard/wgtest"
)

// narrowPath is two namespaces with a router between them that says nothing (its ICMP is blocked):
//
//	left 10.1.0.1 ── 1500 ── 10.1.0.254 router 10.2.0.254 ── 1400 ── 10.2.0.1 right
func narrowPath(t *testing.T) (left, right *wgtest.Namespace) {
	t.Helper()
	left, router, right := wgtest.NewNamespace(t), wgtest.NewNamespace(t), wgtest.NewNamespace(t)
	for _, side := range []struct {
		namespace    *wgtest.Namespace
		port, subnet string
		mtu          string
	}{{left, "left", "10.1.0.", "1500"}, {right, "right", "10.2.0.", "1400"}} {
		router.IP(t, "link", "add", side.port, "type", "veth", "peer", "name", "eth0")
		side.namespace.Take(t, router, "eth0")
		for _, end := range []struct {
			namespace    *wgtest.Namespace
			device, host string
		}{{router, side.port, "254"}, {side.namespace, "eth0", "1"}} {
			end.namespace.IP(t, "address", "add", side.subnet+end.host+"/24", "dev", end.device)
			end.namespace.IP(t, "link", "set", end.device, "mtu", side.mtu, "up")
		}
		side.namespace.IP(t, "route", "add", "default", "via", side.subnet+"254")
		router.IP(t, "rule", "add", "iif", "lo", "to", side.subnet+"0/24", "blackhole") // what it says itself
	}
	router.Sysctl(t, "net/ipv4/ip_forward", "1")
	return left, right
}

// arrivedSizes sends one message of each size through a Bind, and returns the sizes of those that arrive.
func arrivedSizes(t *testing.T, bind conn.Bind, left, right *wgtest.Namespace, sizes ...int) map[int]int {
	t.Helper()
	var socket *net.UDPConn
	right.Do(t, func() (err error) {
		socket, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.2.0.1:7000")))
		return err
	})
	defer socket.Close()
	left.Do(t, func() error {
		_, _, err := bind.Open(0)
		return err
	})
	defer bind.Close()
	peer, err := bind.ParseEndpoint("10.2.0.1:7000")
	if err != nil {
		t.Fatal(err)
	}
	var batch [][]byte
	for _, size := range sizes {
		batch = append(batch, make([]byte, size, 1<<16))
	}
	left.Do(t, func() error { return bind.Send(batch, peer) })
	arrived := map[int]int{}
	buffer := make([]byte, 1<<16)
	for range sizes {
		_ = socket.SetReadDeadline(time.Now().Add(2 * time.Second))
		n, err := socket.Read(buffer)
		if err != nil {
			break
		}
		arrived[n]++
	}
	return arrived
}

// TestNarrowPath: a router whose path is narrower than the device, and which does not say so, fragments: no size
// is lost. With the stock Bind, which forbids it, the full-sized ones are.
func TestNarrowPath(t *testing.T) {
	sizes := []int{100, 1372, 1373, 1472, 1472, 1472, 1473, 9000}
	left, right := narrowPath(t)
	for range 2 { // the second time what the router might have said were known
		if arrived := arrivedSizes(t, conn.NewDefaultBind(), left, right, 100, 1372, 1472); arrived[1472] != 0 || arrived[1372] != 1 {
			t.Fatalf("the test is void: through the stock Bind arrived %v", arrived)
		}
	}
	arrived := arrivedSizes(t, userspace.NewBind(), left, right, sizes...)
	for _, size := range sizes {
		if arrived[size]--; arrived[size] < 0 {
			t.Errorf("of %d bytes fewer arrived than were sent: %v", size, sizes)
		}
	}
}
