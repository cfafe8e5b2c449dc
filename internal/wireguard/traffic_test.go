package wireguard_test

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"warren/internal/cluster"
	"warren/internal/plan"
	"warren/internal/wireguard"
	"warren/internal/wireguard/wgtest"
)

// The network of these tests. Both devices of the right side have the service's address behind them,
// so that the prefix can move between them while packets are on their way:
//
//	left namespace                          right namespace
//	┌──────────────────┐                    ┌──────────────────────────────┐
//	│ left  10.9.0.1   │                    │ first   10.9.0.2   port 1    │
//	│ port 51880       │                    │ second  10.9.0.3   port 2    │
//	│             eth0 ├────────────────────┤ eth0    service 10.9.0.9 (lo)│
//	│     192.168.77.1 │        wire        │ 192.168.77.2                 │
//	└──────────────────┘                    └──────────────────────────────┘
type network struct {
	left, right   *wgtest.Namespace
	sender        side
	first, second side
	service       *net.UDPConn // in the right namespace, on every address
}

type side struct {
	wgtest.Device
	key      cluster.PrivateKey
	settings plan.Device
	peer     plan.Peer // as the other side sees it
}

const (
	leftAddr, firstAddr, secondAddr = "10.9.0.1", "10.9.0.2", "10.9.0.3"
	serviceAddr                     = "10.9.0.9"
	servicePort                     = 9000
)

func newNetwork(t *testing.T, engine wgtest.Engine) *network {
	t.Helper()
	n := &network{left: wgtest.NewNamespace(t), right: wgtest.NewNamespace(t)}
	for _, all := range []string{"default", "all"} { // packets of 10.9.0.1 come by two devices
		n.right.Do(t, func() error { return os.WriteFile("/proc/sys/net/ipv4/conf/"+all+"/rp_filter", []byte("0"), 0) })
	}
	wgtest.Connect(t, n.left, n.right, netip.MustParsePrefix("192.168.77.1/24"), netip.MustParsePrefix("192.168.77.2/24"))
	n.right.IP(t, "address", "add", serviceAddr+"/32", "dev", "lo")
	n.sender = newSide(t, engine(t, n.left), n.left, leftAddr, netip.MustParseAddrPort("192.168.77.1:51880"))
	n.first = newSide(t, engine(t, n.right), n.right, firstAddr, netip.MustParseAddrPort("192.168.77.2:51881"))
	n.second = newSide(t, engine(t, n.right), n.right, secondAddr, netip.MustParseAddrPort("192.168.77.2:51882"))
	introduce(t, n.sender, n.first, firstAddr, serviceAddr)
	introduce(t, n.sender, n.second, secondAddr)
	introduce(t, n.first, n.sender, leftAddr)
	introduce(t, n.second, n.sender, leftAddr)
	n.left.IP(t, "route", "add", "10.9.0.0/24", "dev", n.sender.Name)
	n.right.IP(t, "route", "add", leftAddr+"/32", "dev", n.first.Name)
	n.service = n.listen(t)
	n.handshake(t)
	return n
}

func newSide(t *testing.T, device wgtest.Device, namespace *wgtest.Namespace, addr string, endpoint netip.AddrPort) side {
	t.Helper()
	s := side{Device: device, key: wgtest.NewKey(t), settings: plan.Device{Port: endpoint.Port(), Mark: 0x10}}
	s.peer = plan.Peer{Key: s.key.Public(), Endpoint: endpoint}
	must(t, s.Configure(s.settings, s.key))
	namespace.IP(t, "address", "add", addr+"/32", "dev", s.Name)
	namespace.IP(t, "link", "set", s.Name, "up")
	return s
}

// introduce makes peer, with what lives behind it, known to s.
func introduce(t *testing.T, s, peer side, addrs ...string) {
	t.Helper()
	if err := errors.Join(s.SetPeers([]plan.Peer{peer.peer}), s.GiveIPs(ips(peer, addrs...))); err != nil {
		t.Fatal(err)
	}
}

func ips(peer side, addrs ...string) []plan.AllowedIP {
	var all []plan.AllowedIP
	for _, addr := range addrs {
		all = append(all, plan.AllowedIP{Prefix: cluster.HostPrefix(netip.MustParseAddr(addr)), Peer: peer.peer.Key})
	}
	return all
}

func (n *network) listen(t *testing.T) *net.UDPConn {
	t.Helper()
	var conn *net.UDPConn
	n.right.Do(t, func() (err error) {
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{Port: servicePort})
		return err
	})
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (n *network) dial(t *testing.T, addr string) *net.UDPConn {
	t.Helper()
	var conn *net.UDPConn
	n.left.Do(t, func() (err error) {
		conn, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.ParseIP(addr), Port: servicePort})
		return err
	})
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// handshake waits until a packet has come through each tunnel.
func (n *network) handshake(t *testing.T) {
	t.Helper()
	for _, addr := range []string{firstAddr, secondAddr} {
		if !n.reaches(t, addr) {
			t.Fatalf("nothing comes through to %s", addr)
		}
	}
}

// reaches sends until something arrives.
func (n *network) reaches(t *testing.T, addr string) bool {
	t.Helper()
	conn, buffer := n.dial(t, addr), make([]byte, 2048)
	for range 100 {
		_, _ = conn.Write([]byte("hello")) // refused until the other side listens
		must(t, n.service.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
		if _, err := n.service.Read(buffer); err == nil {
			n.drain(t)
			return true
		}
	}
	return false
}

// drain throws away what else has arrived of the greetings.
func (n *network) drain(t *testing.T) {
	t.Helper()
	buffer := make([]byte, 2048)
	for {
		must(t, n.service.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
		if _, err := n.service.Read(buffer); err != nil {
			return
		}
	}
}

const (
	// window is how many packets are on their way at most: what a busy machine delays must not
	// overflow a queue and look like a tunnel that loses packets.
	window = 64
	// stall is how long nothing comes until what is on its way is lost.
	stall = 5 * time.Second
)

// count sends that many numbered packets to the service while change runs again
// and again, and returns how many arrived and how often change ran. It stops at a stall.
func (n *network) count(t *testing.T, packets int, change func(round int) error) (arrived, changes int) {
	t.Helper()
	var counter atomic.Int64
	var transfer sync.WaitGroup
	conn := n.dial(t, serviceAddr)
	sent := make(chan struct{})
	transfer.Go(func() { receive(n.service, packets, &counter) })
	transfer.Go(func() {
		defer close(sent)
		send(t, conn, packets, &counter)
	})
	defer transfer.Wait()
	for {
		select {
		case <-sent:
			transfer.Wait()
			return int(counter.Load()), changes
		default:
			must(t, change(changes))
			changes++
			time.Sleep(time.Millisecond) // a machine with one processor has packets to carry, too
		}
	}
}

// send ends early at a stall. A packet that the kernel refuses is a lost one.
func send(t *testing.T, conn *net.UDPConn, packets int, arrived *atomic.Int64) {
	packet, refused := make([]byte, 200), error(nil)
	defer func() {
		if refused != nil {
			t.Logf("the last error of a sender: %v", refused)
		}
	}()
	for i := range packets {
		if !awaitWindow(int64(i), arrived) {
			return
		}
		binary.BigEndian.PutUint32(packet, uint32(i))
		if _, err := conn.Write(packet); err != nil {
			refused = err
		}
		if i%8 == 7 {
			time.Sleep(2 * time.Millisecond)
		}
	}
}

func awaitWindow(sent int64, arrived *atomic.Int64) bool {
	before, since := arrived.Load(), time.Now()
	for sent-arrived.Load() >= window {
		if now := arrived.Load(); now != before {
			before, since = now, time.Now()
		}
		if time.Since(since) > stall {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	return true
}

// receive counts different packets until all are there or nothing comes.
func receive(conn *net.UDPConn, packets int, arrived *atomic.Int64) {
	seen, buffer := map[uint32]bool{}, make([]byte, 2048)
	for len(seen) < packets {
		if conn.SetReadDeadline(time.Now().Add(stall)) != nil {
			return
		}
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		if n == 200 {
			seen[binary.BigEndian.Uint32(buffer)] = true
			arrived.Store(int64(len(seen)))
		}
	}
}

// TestChangesUnderTraffic: nothing that the agent does to peers costs a packet of those who are not
// meant. The last case shows that the test would notice.
func TestChangesUnderTraffic(t *testing.T) { wgtest.EachEngine(t, testChangesUnderTraffic) }

func testChangesUnderTraffic(t *testing.T, engine wgtest.Engine) {
	n := newNetwork(t, engine)
	l, packets := n.sender, 1000
	stranger := plan.Peer{Key: cluster.PublicKey{9}, Endpoint: netip.MustParseAddrPort("192.168.77.9:51880")}
	tests := []struct {
		name   string
		change func(round int) error
		loses  bool
	}{
		{name: "the service's address moves between two peers",
			change: func(round int) error {
				return l.GiveIPs(ips([]side{n.first, n.second}[round%2], serviceAddr))
			}},
		{name: "its peer is pinned again and given what it has",
			change: func(int) error {
				return errors.Join(l.SetPeers([]plan.Peer{n.first.peer}), l.GiveIPs(ips(n.first, firstAddr, serviceAddr)))
			}},
		{name: "other peers come and go, with prefixes around it",
			change: func(int) error {
				around := netip.MustParsePrefix("10.9.0.8/31")
				return errors.Join(
					l.SetPeers([]plan.Peer{stranger}),
					l.GiveIPs([]plan.AllowedIP{{Prefix: around, Peer: stranger.Key}}),
					l.OrphanIPs([]netip.Prefix{around}),
					l.RemovePeers([]cluster.PublicKey{stranger.Key}))
			}},
		{name: "its peer loses other prefixes",
			change: func(int) error {
				return errors.Join(l.GiveIPs(ips(n.first, "10.9.0.20", "10.9.0.21")),
					l.OrphanIPs([]netip.Prefix{netip.MustParsePrefix("10.9.0.20/32"), netip.MustParsePrefix("10.9.0.21/32")}))
			}},
		{name: "configured again",
			change: func(int) error { return l.Configure(n.sender.settings, n.sender.key) }},
		{name: "the peer is removed and added, which the agent never does",
			change: func(int) error {
				return errors.Join(l.RemovePeers([]cluster.PublicKey{n.first.peer.Key}),
					l.SetPeers([]plan.Peer{n.first.peer}), l.GiveIPs(ips(n.first, firstAddr, serviceAddr)))
			},
			loses: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			must(t, l.GiveIPs(ips(n.first, firstAddr, serviceAddr)))
			arrived, changes := n.count(t, packets, test.change)
			t.Logf("%d of %d packets arrived, %d changes", arrived, packets, changes)
			if (arrived < packets) != test.loses {
				t.Errorf("%d of %d packets arrived", arrived, packets)
			}
			if changes < 10 {
				t.Errorf("only %d changes while packets were sent", changes)
			}
		})
	}
}

// TestMark: every packet that leaves the device has the mark, also after mark or port changed.
func TestMark(t *testing.T) { wgtest.EachEngine(t, testMark) }

func testMark(t *testing.T, engine wgtest.Engine) {
	n := newNetwork(t, engine)
	const packets = 200
	tests := []struct {
		name string
		want plan.Device
	}{
		{"as configured", plan.Device{Port: 51880, Mark: 0x10}},
		{"another mark", plan.Device{Port: 51880, Mark: 0x20}},
		{"another port, which is another socket", plan.Device{Port: 51890, Mark: 0x20}},
		{"both", plan.Device{Port: 51891, Mark: 0x30}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			before := tap(t, n.left, n.sender.settings.Port)
			after := tap(t, n.left, test.want.Port)
			old := n.sender.settings
			n.sender.settings = test.want
			must(t, n.sender.Configure(test.want, n.sender.key))
			if arrived, _ := n.count(t, packets, idle); arrived != packets {
				t.Errorf("%d of %d packets arrived", arrived, packets)
			}
			marks := after.marks(t)
			if marks[test.want.Mark] == 0 || len(marks) != 1 {
				t.Errorf("packets by mark: %v, want only %#x", marks, test.want.Mark)
			}
			if marks := before.marks(t); old.Port != test.want.Port && len(marks) > 0 {
				t.Errorf("packets by mark, from the old port: %v, want none", marks)
			}
		})
	}
}

// TestLinkDownAndUp: a tunnel whose link was set down for a moment keeps its port, its peers and their sessions.
// The kernel's own devices close their socket and forget their sessions.
func TestLinkDownAndUp(t *testing.T) {
	n := newNetwork(t, wgtest.Userspace)
	before := n.firstPeer(t)
	n.left.IP(t, "link", "set", n.sender.Name, "down")
	n.left.IP(t, "link", "set", n.sender.Name, "up")
	n.left.IP(t, "route", "add", "10.9.0.0/24", "dev", n.sender.Name) // went with the link
	const packets = 100
	if arrived, _ := n.count(t, packets, idle); arrived != packets {
		t.Errorf("%d of %d packets arrived", arrived, packets)
	}
	after := n.firstPeer(t)
	if before.LastHandshake.IsZero() || !after.LastHandshake.Equal(before.LastHandshake) || after.Tx <= before.Tx {
		t.Errorf("peer before %+v, after %+v: want the same session", before, after)
	}
}

// firstPeer is what the sender knows of the first side.
func (n *network) firstPeer(t *testing.T) wireguard.PeerState {
	t.Helper()
	actual, err := n.sender.Read()
	must(t, err)
	for _, peer := range actual.Peers {
		if peer.Peer.Key == n.first.peer.Key {
			return peer
		}
	}
	t.Fatalf("the sender does not know the first side: %+v", actual)
	return wireguard.PeerState{}
}

func idle(int) error { return nil }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
