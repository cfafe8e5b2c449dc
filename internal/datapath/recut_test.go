package datapath

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/datapath/model"
)

// peer is a machine in a network namespace of its own, behind the tunnel:
//
//	client ── eth0: to_netdev ──► warren0 ══ test ══ far (10.0.0.2, fd00::2) ── server
//
// The test carries packets of any size, as no network does, and notes how large the node's are.
type peer struct {
	far     tunDevice
	largest atomic.Int64  // bytes
	large   atomic.Uint64 // packets over inner
}

// inNamespace runs do in a new network namespace. What it opens stays there.
func inNamespace(t testing.TB, do func()) {
	t.Helper()
	runtime.LockOSThread() // not unlocked when do ends the test: then the thread ends as well
	original, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer original.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	do()
	if err := unix.Setns(int(original.Fd()), unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	runtime.UnlockOSThread()
}

// newPeer makes the peer, with a server for each address, and begins to carry packets.
func newPeer(t *testing.T, n *node, addresses ...string) (*peer, []net.Listener) {
	t.Helper()
	p := &peer{}
	overlay(t, "eth0", 1, 2)
	var servers []net.Listener
	inNamespace(t, func() {
		p.far = newTUN(t, "far")
		ip(t, "addr add 10.0.0.2/24 dev far", "addr add fd00::2/64 dev far nodad")
		overlay(t, "far", 2, 1)
		for _, address := range addresses {
			server, err := net.Listen("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = server.Close() })
			servers = append(servers, server)
		}
	})
	go carry(p.far, n.tunnel, func([]byte) {})
	go carry(n.tunnel, p.far, func(packet []byte) {
		if len(packet) > inner {
			p.large.Add(1)
		}
		if size := int64(len(packet)); size > p.largest.Load() {
			p.largest.Store(size)
		}
	})
	return p, servers
}

// overlay makes one end of a VXLAN, which is gone when the device is.
func overlay(t *testing.T, device string, self, other int) {
	t.Helper()
	ip(t, fmt.Sprintf("link add vx mtu 1450 type vxlan id 7 dstport 4789 local 10.0.0.%d remote 10.0.0.%d dev %s", self, other, device),
		"link set vx addrgenmode none", fmt.Sprintf("addr add 10.9.0.%d/24 dev vx", self), "link set vx up")
}

// carry ends when one of the devices is closed.
func carry(from, to tunDevice, see func([]byte)) {
	_ = from.SetReadDeadline(time.Time{})
	buffer := make([]byte, 1<<16)
	for {
		size, err := from.Read(buffer)
		if err != nil {
			return
		}
		see(buffer[:size])
		if _, err := to.Write(buffer[:size]); err != nil && !errors.Is(err, unix.EINVAL) {
			return
		}
	}
}

// dialTCP opens a connection through a socket with an option set, if there is one.
func dialTCP(t *testing.T, to string, option func(fd int) error) net.Conn {
	t.Helper()
	dialer := net.Dialer{Timeout: patience, Control: func(_, _ string, raw syscall.RawConn) (err error) {
		problem := raw.Control(func(fd uintptr) {
			if option != nil {
				err = option(int(fd))
			}
		})
		return errors.Join(err, problem)
	}}
	conn, err := dialer.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.(*net.TCPConn).SetLinger(0) // no retransmission into the next test's tunnel
		_ = conn.Close()
	})
	return conn
}

// transfer sends random bytes through the connection and fails unless the same ones arrive.
func transfer(t *testing.T, conn net.Conn, server net.Conn, size int) {
	t.Helper()
	for _, c := range []net.Conn{conn, server} {
		if err := c.SetDeadline(time.Now().Add(6 * patience)); err != nil {
			t.Fatal(err)
		}
	}
	sent := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(sent)
	problem := make(chan error, 1)
	go func() {
		_, err := conn.Write(sent)
		problem <- err
	}()
	received := make([]byte, size)
	if n, err := io.ReadFull(server, received); err != nil {
		t.Fatalf("%d of %d bytes arrived: %v", n, size, err)
	}
	if err := <-problem; err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(sent, received) {
		t.Errorf("received %x, want %x (SHA-256)", sha256.Sum256(received), sha256.Sum256(sent))
	}
}

const (
	bulk  = 8 << 20
	inner = 1440
)

// TestRunningTCPIsCutSmaller: a connection from before anybody knew how much the tunnel carries goes on,
// in packets that fit, with the same bytes.
func TestRunningTCPIsCutSmaller(t *testing.T) {
	destination := make([]byte, 8) // a destination options header of 8 bytes: padding
	destination[2], destination[3] = 1, 4
	tests := []struct {
		name, to string
		mtu      int
		option   func(fd int) error
	}{
		{name: "IPv4", to: "10.0.0.2:7", mtu: 1500},
		{name: "IPv6", to: "[fd00::2]:7", mtu: 1500},
		{name: "inside VXLAN", to: "10.9.0.2:7", mtu: 1500},
		{name: "jumbo frames", to: "10.0.0.2:7", mtu: 9000},
		{name: "IPv4 options", to: "10.0.0.2:7", mtu: 1500, option: func(fd int) error {
			return unix.SetsockoptString(fd, unix.IPPROTO_IP, unix.IP_OPTIONS, "\x01\x01\x01\x01\x01\x01\x01\x01")
		}},
		{name: "IPv6 extension header", to: "[fd00::2]:7", mtu: 1500, option: func(fd int) error {
			return unix.SetsockoptString(fd, unix.IPPROTO_IPV6, unix.IPV6_DSTOPTS, string(destination))
		}},
	}
	everyMode(t, func(t *testing.T, mode AttachMode) {
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				n := newNode(t, mode)
				ip(t, fmt.Sprintf("link set wire mtu %d", test.mtu), fmt.Sprintf("link set eth0 mtu %d", test.mtu))
				p, servers := newPeer(t, n, test.to)
				conn := dialTCP(t, test.to, test.option)
				server, err := servers[0].Accept()
				if err != nil {
					t.Fatal(err)
				}
				defer server.Close()
				transfer(t, conn, server, bulk)
				if got := p.largest.Load(); got != int64(test.mtu) {
					t.Fatalf("before: the largest packet has %d bytes, want %d", got, test.mtu)
				}
				n.config.InnerMTU = inner
				configure(t, n.Datapath, n.config)
				p.large.Store(0)
				transfer(t, conn, server, bulk)
				recut, oversize := n.count(t, toNetdev, model.ReasonRecut), n.count(t, toNetdev, model.ReasonOversize)
				t.Logf("%d recut, %d oversize, %d too large in the tunnel", recut, oversize, p.large.Load())
				if recut == 0 {
					t.Error("nothing was recut")
				}
				if got := p.large.Load(); got > oversize { // single segments; a full queue loses some
					t.Errorf("%d packets over %d bytes, but %d counted", got, inner, oversize)
				}
			})
		}
	})
}

// TestNewTCPFits: the offers of both ends are lowered, so that nothing has to be recut.
func TestNewTCPFits(t *testing.T) {
	everyMode(t, func(t *testing.T, mode AttachMode) {
		for _, to := range []string{"10.0.0.2:7", "[fd00::2]:7"} {
			t.Run(to, func(t *testing.T) {
				n := newNode(t, mode)
				n.config.InnerMTU = inner
				configure(t, n.Datapath, n.config)
				p, servers := newPeer(t, n, to)
				conn := dialTCP(t, to, nil)
				server, err := servers[0].Accept()
				if err != nil {
					t.Fatal(err)
				}
				defer server.Close()
				transfer(t, conn, server, bulk)
				if got := p.largest.Load(); got != inner {
					t.Errorf("the largest packet has %d bytes, want %d", got, inner)
				}
				for _, reason := range []model.Reason{model.ReasonRecut, model.ReasonOversize} {
					if got := n.count(t, toNetdev, reason); got != 0 {
						t.Errorf("%d counted as %v, want 0", got, reason)
					}
				}
			})
		}
	})
}
