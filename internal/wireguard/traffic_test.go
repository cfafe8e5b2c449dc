package wireguard_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/cluster"
	"warren/internal/plan"
	"warren/internal/wireguard"
	"warren/internal/wireguard/userspace"
	"warren/internal/wireguard/wgtest"
)

// The network of these tests. Both tunnels of the right side have the service's address behind them,
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
	wgtest.Tunnel
	device   *wireguard.Device
	key      cluster.PrivateKey
	settings plan.Device
	peer     plan.Peer // as the other side sees it
}

const (
	leftAddr, firstAddr, secondAddr = "10.9.0.1", "10.9.0.2", "10.9.0.3"
	serviceAddr                     = "10.9.0.9"
	servicePort                     = 9000
)

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{left: wgtest.NewNamespace(t), right: wgtest.NewNamespace(t)}
	for _, all := range []string{"default", "all"} { // packets of 10.9.0.1 come by two devices
		n.right.Output(t, "sh", "-c", "echo 0 > /proc/sys/net/ipv4/conf/"+all+"/rp_filter")
	}
	wgtest.Connect(t, n.left, n.right, netip.MustParsePrefix("192.168.77.1/24"), netip.MustParsePrefix("192.168.77.2/24"))
	n.right.IP(t, "address", "add", serviceAddr+"/32", "dev", "lo")
	n.sender = newSide(t, n.left, leftAddr, netip.MustParseAddrPort("192.168.77.1:51880"))
	n.first = newSide(t, n.right, firstAddr, netip.MustParseAddrPort("192.168.77.2:51881"))
	n.second = newSide(t, n.right, secondAddr, netip.MustParseAddrPort("192.168.77.2:51882"))
	introduce(t, n.sender, n.first, firstAddr, serviceAddr)
	introduce(t, n.sender, n.second, secondAddr)
	introduce(t, n.first, n.sender, leftAddr)
	introduce(t, n.second, n.sender, leftAddr)
	n.left.IP(t, "route", "add", "10.9.0.0/24", "dev", n.sender.Device)
	n.right.IP(t, "route", "add", leftAddr+"/32", "dev", n.first.Device)
	n.service = n.listen(t)
	n.handshake(t)
	return n
}

func newSide(t *testing.T, namespace *wgtest.Namespace, addr string, endpoint netip.AddrPort) side {
	t.Helper()
	tunnel := namespace.NewTunnel(t, userspace.TunnelOptions{})
	s := side{
		Tunnel:   tunnel,
		device:   tunnel.Open(t, slog.New(slog.DiscardHandler)),
		key:      wgtest.NewKey(t),
		settings: plan.Device{Port: endpoint.Port(), Mark: 0x10},
	}
	s.peer = plan.Peer{Key: s.key.Public(), Endpoint: endpoint}
	must(t, s.device.Configure(s.settings, s.key))
	namespace.IP(t, "address", "add", addr+"/32", "dev", tunnel.Device)
	namespace.IP(t, "link", "set", tunnel.Device, "up")
	return s
}

// introduce makes peer, with what lives behind it, known to s.
func introduce(t *testing.T, s, peer side, addrs ...string) {
	t.Helper()
	if err := errors.Join(s.device.SetPeers([]plan.Peer{peer.peer}), s.device.GiveIPs(ips(peer, addrs...))); err != nil {
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
			t.Fatalf("nothing comes through to %s\nleft: %s\nright: %s %s", addr, n.sender.Log(t), n.first.Log(t), n.second.Log(t))
		}
	}
}

// reaches sends until something arrives.
func (n *network) reaches(t *testing.T, addr string) bool {
	t.Helper()
	conn, buffer := n.dial(t, addr), make([]byte, 2048)
	for range 100 {
		if _, err := conn.Write([]byte("hello")); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatal(err)
		}
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

// count sends that many numbered packets to the service in a good second while change runs again
// and again, and returns how many arrived and how often change ran. It stops at a stall.
func (n *network) count(t *testing.T, packets int, change func(round int) error) (arrived, changes int) {
	t.Helper()
	var counter atomic.Int64
	received, sent := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(received)
		receive(n.service, packets, &counter)
	}()
	conn := n.dial(t, serviceAddr)
	go func() { sent <- send(conn, packets, &counter) }()
	for {
		select {
		case err := <-sent:
			must(t, err)
			<-received
			return int(counter.Load()), changes
		default:
			must(t, change(changes))
			changes++
		}
	}
}

// send ends early at a stall.
func send(conn *net.UDPConn, packets int, arrived *atomic.Int64) error {
	packet := make([]byte, 200)
	for i := range packets {
		if !awaitWindow(int64(i), arrived) {
			return nil
		}
		binary.BigEndian.PutUint32(packet, uint32(i))
		if _, err := conn.Write(packet); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			return fmt.Errorf("send packet %d: %w", i, err)
		}
		if i%8 == 7 {
			time.Sleep(2 * time.Millisecond)
		}
	}
	return nil
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
func TestChangesUnderTraffic(t *testing.T) {
	n := newNetwork(t)
	l, packets := n.sender.device, 4000
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

// TestMark: every packet that leaves the device has the mark, also after it changed.
func TestMark(t *testing.T) {
	n := newNetwork(t)
	n.left.Output(t, "nft", `
		add table inet marks;
		add counter inet marks marked; add counter inet marks remarked; add counter inet marks bare;
		add chain inet marks out { type filter hook output priority 0; };
		add rule inet marks out udp dport { 51881, 51882 } meta mark 0x10 counter name marked accept;
		add rule inet marks out udp dport { 51881, 51882 } meta mark 0x20 counter name remarked accept;
		add rule inet marks out udp dport { 51881, 51882 } counter name bare`)
	const packets = 200
	sendAll := func() map[string]int {
		if arrived, _ := n.count(t, packets, idle); arrived != packets {
			t.Fatalf("%d of %d packets arrived", arrived, packets)
		}
		return counters(t, n.left)
	}
	first := sendAll()
	if first["marked"] < packets || first["remarked"] != 0 || first["bare"] != 0 {
		t.Errorf("packets by mark: %v, want all with the first one", first)
	}
	n.sender.settings.Mark = 0x20
	must(t, n.sender.device.Configure(n.sender.settings, n.sender.key))
	second := sendAll()
	if second["marked"] != first["marked"] || second["remarked"] < packets || second["bare"] != 0 {
		t.Errorf("packets by mark: first %v, then %v; want all new ones with the second one", first, second)
	}
	n.sender.settings.Port = 51890 // a new socket
	must(t, n.sender.device.Configure(n.sender.settings, n.sender.key))
	third := sendAll()
	if third["marked"] != second["marked"] || third["remarked"] < second["remarked"]+packets || third["bare"] != 0 {
		t.Errorf("packets by mark: second %v, then %v from the new port; want all new ones with the second one", second, third)
	}
}

// TestLinkDownAndUp: a link that was set down for a moment keeps its port, its peers and their sessions.
func TestLinkDownAndUp(t *testing.T) {
	n := newNetwork(t)
	before := n.firstPeer(t)
	n.left.IP(t, "link", "set", n.sender.Device, "down")
	n.left.IP(t, "link", "set", n.sender.Device, "up")
	n.left.IP(t, "route", "add", "10.9.0.0/24", "dev", n.sender.Device) // went with the link
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
	actual, err := n.sender.device.Read()
	must(t, err)
	for _, peer := range actual.Peers {
		if peer.Peer.Key == n.first.peer.Key {
			return peer
		}
	}
	t.Fatalf("the sender does not know the first side: %+v", actual)
	return wireguard.PeerState{}
}

func idle(int) error {
	time.Sleep(10 * time.Millisecond)
	return nil
}

func counters(t *testing.T, namespace *wgtest.Namespace) map[string]int {
	t.Helper()
	var list struct {
		Nftables []struct {
			Counter *struct {
				Name    string
				Packets int
			}
		}
	}
	must(t, json.Unmarshal([]byte(namespace.Output(t, "nft", "-j", "list", "counters")), &list))
	packets := map[string]int{}
	for _, item := range list.Nftables {
		if item.Counter != nil {
			packets[item.Counter.Name] = item.Counter.Packets
		}
	}
	return packets
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
