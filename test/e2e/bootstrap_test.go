package e2e

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"warren/internal/api"
	"warren/internal/discovery/dir"
	"warren/internal/discovery/record"
	"warren/internal/lab/netns"
	"warren/test/flow"
)

// Ports of the server that stands for an API server, and of one that is none.
const apiPort, otherPort = 6443, 6444

// TestJoinStrict: a new node joins a cluster in strict mode whose API server runs on n1, while its tunnel to n1 cannot
// come up. It reaches the API server in clear and nothing else; when the tunnel is there, everything goes through it, and
// the exception is closed.
func TestJoinStrict(t *testing.T) {
	t.Parallel()
	needTool(t, "nft")
	c := up(t, "join", "--nodes", "2", "--pods", "1", "--mode", "strict")
	n1 := c.node("n1")
	records := filepath.Dir(c.open().RecordPath("n1"))
	write(t, filepath.Join(records, dir.APIServerFile), record.MarshalAPIServers([]netip.AddrPort{
		netip.AddrPortFrom(n1.Addresses[0], apiPort), netip.AddrPortFrom(n1.Addresses[1], apiPort),
	}))
	for _, address := range n1.Addresses {
		for _, port := range []uint16{apiPort, otherPort} {
			serveEcho(t, n1.Namespace, netip.AddrPortFrom(address, port))
		}
	}
	// Nobody but n2 is heard by the tunnel of n1.
	n2 := c.node("n2").Addresses[0].String()
	c.mustExec("n1", "nft", "table inet block { chain in { type filter hook input priority 0; udp dport 51880 ip saddr != "+n2+" drop; }; }")
	eventually(t, 30*time.Second, "n1 enforces, since it is strict for long", func() bool {
		return slices.ContainsFunc(c.status("n1").Peers, func(p api.Peer) bool { return p.Enforcing })
	})
	c.run("join", "--wait", "5s") // n1 is never confirmed

	n3 := c.node("n3")
	eventually(t, 30*time.Second, "n3 enforces too", func() bool {
		return slices.ContainsFunc(c.status("n3").Peers, func(p api.Peer) bool { return p.Node == "n1" && p.Enforcing })
	})
	reaches := func(port uint16, family int) bool {
		return echoes(n3.Namespace, netip.AddrPortFrom(n1.Addresses[family], port), 10*time.Second)
	}
	for family := range 2 {
		if !reaches(apiPort, family) {
			t.Errorf("family %d: n3 does not reach the API server of a peer that is not confirmed", family)
		}
		if echoes(n3.Namespace, netip.AddrPortFrom(n1.Addresses[family], otherPort), 2*time.Second) {
			t.Errorf("family %d: n3 reaches another port of that peer in clear", family)
		}
	}
	if c.reason("n3", "bootstrap") == 0 || c.reason("n3", "not_confirmed") == 0 {
		t.Errorf("counted %d as bootstrap and %d as not confirmed", c.reason("n3", "bootstrap"), c.reason("n3", "not_confirmed"))
	}

	c.mustExec("n1", "nft", "delete table inet block")
	eventually(t, 15*time.Second, "n3 encrypts to n1, and n1 to n3", func() bool { return len(c.peers("n3")) == 2 && len(c.peers("n1")) == 2 })
	before := c.reason("n3", "bootstrap")
	for family := range 2 {
		if !reaches(apiPort, family) || !reaches(otherPort, family) {
			t.Errorf("family %d: n3 does not reach n1 through the tunnel", family)
		}
	}
	if after := c.reason("n3", "bootstrap"); after != before {
		t.Errorf("%d packets took the exception after it was closed", after-before)
	}
	c.mustVerify(6 * 4 * 2 * 3)
}

// TestStackedServers: two nodes that both run an API server go on talking to each other, in strict mode, while a third
// joins (cilium 28965), and while agents are killed and started.
func TestStackedServers(t *testing.T) {
	t.Parallel()
	c := up(t, "stacked", "--nodes", "2", "--pods", "1", "--mode", "strict")
	n1, n2 := c.node("n1"), c.node("n2")
	servers := []netip.AddrPort{netip.AddrPortFrom(n1.Addresses[0], apiPort), netip.AddrPortFrom(n2.Addresses[0], apiPort)}
	flows := flow.Between(t, c.open().Topology.Nodes)
	list := filepath.Join(filepath.Dir(c.open().RecordPath("n1")), dir.APIServerFile)
	write(t, list, record.MarshalAPIServers(servers))
	c.must("join")
	c.must("agent", "kill", "n1", "n2")
	write(t, list, record.MarshalAPIServers(servers[:1])) // one of them goes meanwhile
	c.must("agent", "start", "n1", "n2")
	if err := os.Remove(list); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	for _, f := range flows {
		f.Finish(t)
	}
	c.mustVerify(6 * 4 * 2 * 3)
}

// serveEcho answers TCP connections at an address with what they send first, until the end of the test.
func serveEcho(t *testing.T, namespace string, at netip.AddrPort) {
	t.Helper()
	acceptEach(t, namespace, at, func(connection net.Conn) {
		buffer := make([]byte, 16)
		n, _ := connection.Read(buffer)
		_, _ = connection.Write(buffer[:n])
	})
}

// acceptEach handles TCP connections at an address until the end of the test.
func acceptEach(t *testing.T, namespace string, at netip.AddrPort, handle func(net.Conn)) {
	t.Helper()
	var listener net.Listener
	err := netns.Do(namespace, func() (err error) {
		listener, err = net.Listen("tcp", at.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				handle(connection)
			}()
		}
	}()
}

// echoes reports whether a server answers to a namespace in time.
func echoes(namespace string, at netip.AddrPort, limit time.Duration) bool {
	var connection net.Conn
	err := netns.Do(namespace, func() (err error) {
		connection, err = net.DialTimeout("tcp", at.String(), limit)
		return err
	})
	if err != nil {
		return false
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(limit))
	_, _ = connection.Write([]byte("ping"))
	n, _ := connection.Read(make([]byte, 4))
	return n == 4
}
