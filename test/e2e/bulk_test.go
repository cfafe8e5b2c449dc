package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/lab"
	"warren/internal/lab/netns"
	"warren/internal/lab/proof"
	"warren/test/flow"
)

const (
	// bulkSize is what one transfer carries: a connection that loses its large packets does not get there.
	bulkSize = 16 << 20
	// bulkLimit is generous: an idle machine needs a tenth of a second.
	bulkLimit = 30 * time.Second
	// bulkRetransmitted is the share of the bytes that may be sent again: queues are short on a busy machine.
	bulkRetransmitted = 0.05
)

// bulk is a TCP connection from one end to another, whose bytes are counted where they arrive.
type bulk struct {
	name    string
	client  *net.TCPConn
	sent    int64
	arrived *atomic.Int64
}

// startBulk connects two ends; the connection is closed with the test.
func startBulk(t *testing.T, from, to proof.End) *bulk {
	t.Helper()
	b := &bulk{name: fmt.Sprintf("%s to %s", from.Address, to.Address), arrived: &atomic.Int64{}}
	var listener net.Listener
	err := netns.Do(to.Namespace, func() (err error) {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(to.Address, 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	err = netns.Do(from.Namespace, func() error {
		client, err := net.DialTimeout("tcp", listener.Addr().String(), bulkLimit)
		if err == nil {
			b.client = client.(*net.TCPConn)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = b.client.Close(), server.Close() })
	go b.count(server)
	return b
}

func (b *bulk) count(server net.Conn) {
	buffer := make([]byte, 1<<18)
	for {
		n, err := server.Read(buffer)
		b.arrived.Add(int64(n))
		if err != nil {
			return
		}
	}
}

// send returns how long so many bytes took to arrive, and the share that was sent again.
func (b *bulk) send(t *testing.T, size int) (took time.Duration, again float64) {
	t.Helper()
	before, start := b.info(t), time.Now()
	_ = b.client.SetWriteDeadline(start.Add(bulkLimit))
	n, err := b.client.Write(make([]byte, size))
	if b.sent += int64(n); err != nil {
		t.Fatalf("%s: %d of %d bytes sent: %v", b.name, n, size, err)
	}
	b.arrive(t)
	took = time.Since(start)
	after := b.info(t)
	return took, float64(after.Bytes_retrans-before.Bytes_retrans) / float64(size)
}

// arrive waits until all that was sent has arrived.
func (b *bulk) arrive(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(bulkLimit); b.arrived.Load() < b.sent; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: %d of %d bytes have arrived after %v", b.name, b.arrived.Load(), b.sent, bulkLimit)
		}
	}
}

// busy sends over all connections while do runs; none of them may fail, and everything has to arrive.
func busy(t *testing.T, all []*bulk, do func()) {
	t.Helper()
	var stop atomic.Bool
	var sending sync.WaitGroup
	problems := make([]error, len(all))
	for i, b := range all {
		sending.Go(func() {
			for !stop.Load() && problems[i] == nil {
				_ = b.client.SetWriteDeadline(time.Now().Add(bulkLimit))
				var n int
				n, problems[i] = b.client.Write(make([]byte, 1<<18))
				b.sent += int64(n)
			}
		})
	}
	do()
	stop.Store(true)
	sending.Wait()
	for i, b := range all {
		if problems[i] != nil {
			t.Fatalf("%s: %v", b.name, problems[i])
		}
		b.arrive(t)
	}
}

func (b *bulk) info(t *testing.T) *unix.TCPInfo {
	t.Helper()
	raw, err := b.client.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var info *unix.TCPInfo
	problem := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if err := errors.Join(err, problem); err != nil {
		t.Fatal(err)
	}
	return info
}

// pairs are the ends of the connections between two nodes, of hosts and of pods, in both families.
func pairs(n1, n2 lab.Node) [][2]proof.End {
	var all [][2]proof.End
	for family := range 2 {
		all = append(all,
			[2]proof.End{flow.Host(n1, family), flow.Host(n2, family)}, [2]proof.End{flow.Pod(n1, family), flow.Pod(n2, family)})
	}
	return all
}

// reason returns how many packets left to_netdev of a node for a reason.
func (c *testLab) reason(node, name string) (packets uint64) {
	for _, reason := range c.status(node).Reasons {
		if reason.Program == "to_netdev" && reason.Reason == name {
			packets += reason.Packets
		}
	}
	return packets
}

// TestBulk: TCP that begins in the tunnel fits into it. Inside an overlay, whose segments nobody lowers, it is made
// to fit.
func TestBulk(t *testing.T) {
	for _, cni := range []string{"routes", "vxlan"} {
		t.Run(cni, func(t *testing.T) {
			t.Parallel()
			c := up(t, "bulk-"+cni, "--nodes", "2", "--pods", "1", "--cni", cni)
			for _, ends := range pairs(c.node("n1"), c.node("n2")) {
				b := startBulk(t, ends[0], ends[1])
				took, again := b.send(t, bulkSize)
				t.Logf("%s: %d MiB in %v, %.2f %% of it again, segments of %d bytes", b.name, bulkSize>>20, took, 100*again, b.info(t).Snd_mss)
				if again > bulkRetransmitted {
					t.Errorf("%s: %.1f %% was sent again, want at most %.0f %%", b.name, 100*again, 100*bulkRetransmitted)
				}
			}
			recut, oversize := c.reason("n1", "recut")+c.reason("n2", "recut"), c.reason("n1", "oversize")+c.reason("n2", "oversize")
			t.Logf("%d packets recut, %d oversize", recut, oversize)
			if cni == "routes" && recut+oversize != 0 {
				t.Error("want none: every connection is younger than the tunnel")
			}
			if cni == "vxlan" && recut == 0 {
				t.Error("no packet was recut")
			}
		})
	}
}

const (
	// collapsed is the share of a new connection's speed below which an old one has not got through at its size: without
	// the re-cut it is under 0.001. It is no measure of speed, of which others on the same processors take their part.
	collapsed = 0.1
	// Each is measured so often, in turns, with so many bytes.
	runningRounds = 5
	runningSize   = 4 << 20
)

// TestRunningConnections: connections from before the tunnel go on through it, and go on when it is taken away again.
func TestRunningConnections(t *testing.T) {
	c := up(t, "running", "--nodes", "2", "--pods", "1")
	off := func() {
		c.must("agent", "stop", "n1", "n2")
		for _, node := range []string{"n1", "n2"} {
			c.mustExec(node, warren, "cleanup")
		}
	}
	off()
	all := pairs(c.node("n1"), c.node("n2"))
	var old []*bulk
	for _, ends := range all {
		old = append(old, startBulk(t, ends[0], ends[1]))
	}
	busy(t, old, func() {
		c.must("agent", "start", "n1", "n2")
		eventually(t, bulkLimit, "large packets are cut to fit the tunnel", func() bool { return c.reason("n1", "recut") > 0 })
		time.Sleep(time.Second) // they have so long to find their pace
	})
	for i, ends := range all {
		old[i].compare(t, startBulk(t, ends[0], ends[1]))
	}
	c.mustVerify(2 * 4 * 2 * 3)
	busy(t, old, off)
	for i, ends := range all {
		old[i].compare(t, startBulk(t, ends[0], ends[1]))
	}
}

// compare reports how fast a connection is beside a new one, and expects it not to have collapsed.
func (b *bulk) compare(t *testing.T, other *bulk) {
	t.Helper()
	other.send(t, 1<<20) // find its pace
	speed := b.speed(t, other)
	t.Logf("%s: %.2f of the speed of a new connection; segments of %d bytes, the new one's %d", b.name, speed, b.info(t).Snd_mss, other.info(t).Snd_mss)
	if speed < collapsed {
		t.Errorf("%s: %.2f of the speed of a new connection, want at least %.1f", b.name, speed, collapsed)
	}
}

// speed is that of a connection as a share of another's: medians of rounds that alternate.
func (b *bulk) speed(t *testing.T, other *bulk) float64 {
	t.Helper()
	var took, tookOther []time.Duration
	for range runningRounds {
		mine, _ := b.send(t, runningSize)
		its, _ := other.send(t, runningSize)
		took, tookOther = append(took, mine), append(tookOther, its)
	}
	return median(tookOther).Seconds() / median(took).Seconds()
}

// TestUnderlayMTUChanges: connections go on when the underlay carries less than before, and the tunnel follows.
func TestUnderlayMTUChanges(t *testing.T) {
	t.Parallel()
	c := up(t, "mtu", "--nodes", "2", "--pods", "1")
	var running []*bulk
	for _, ends := range pairs(c.node("n1"), c.node("n2")) {
		running = append(running, startBulk(t, ends[0], ends[1]))
	}
	for _, change := range []struct{ underlay, tunnel int }{{1500, 1440}, {1400, 1328}, {1500, 1440}} {
		for _, node := range []string{"n1", "n2"} {
			c.mustExec(node, "ip", "link", "set", "eth0", "mtu", fmt.Sprint(change.underlay))
		}
		for _, node := range []string{"n1", "n2"} {
			eventually(t, bulkLimit, fmt.Sprintf("the tunnel of %s has MTU %d", node, change.tunnel), func() bool {
				return c.status(node).Device.MTU == change.tunnel
			})
		}
		for _, b := range running {
			took, _ := b.send(t, bulkSize)
			t.Logf("underlay %d, %s: %d MiB in %v", change.underlay, b.name, bulkSize>>20, took)
		}
	}
}
