package e2e

import (
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"warren/test/flow"
)

// TestTunnelThatWaits: a tunnel process that has to wait for a processor loses nothing.
func TestTunnelThatWaits(t *testing.T) {
	t.Parallel()
	c := up(t, "waits", "--nodes", "3", "--pods", "1", "--mode", "strict")
	flows := flow.Between(t, c.open().Topology.Nodes)
	for _, node := range []string{"n1", "n2"} {
		for range 5 {
			for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
				for _, pid := range tunnels(t, c, node) {
					if err := syscall.Kill(pid, signal); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(300 * time.Millisecond)
			}
		}
	}
	for _, f := range flows {
		f.Finish(t)
	}
}

// TestTunnelThatIsStuck: a peer of n1's device has lost its session and cannot make another one, since somebody gave it
// a key that n2 does not have. Nothing but attempts is sent, for ever; the agent puts the peer up anew.
func TestTunnelThatIsStuck(t *testing.T) {
	t.Parallel()
	c := up(t, "stuck", "--nodes", "2", "--pods", "1", "--mode", "strict")
	n1, n2 := c.node("n1"), c.node("n2")
	server := netip.AddrPortFrom(n2.Addresses[0], otherPort)
	serveEcho(t, n2.Namespace, server)
	works := func() bool { return echoes(n1.Namespace, server, time.Second) }
	eventually(t, 30*time.Second, "n1 reaches n2", works)
	peer := peerOf(t, c, "n1", "n2")
	key := "public_key=" + hexKey(t, peer) + "\n"
	lines := key + "remove=true\n" + key + "preshared_key=" + strings.Repeat("5a", 32) + "\nendpoint=" + peer.Endpoint + "\n"
	for _, prefix := range peer.AllowedIPs {
		lines += "allowed_ip=" + prefix + "\n"
	}
	configureDevice(t, c, "n1", lines)
	if works() {
		t.Error("the tunnel is not stuck")
	}
	took := eventually(t, 2*time.Minute, "the tunnel works again", works)
	t.Logf("stuck for %v", took)
	if scrape := c.mustExec("n1", "curl", "-s", "http://127.0.0.1:9880/metrics"); !strings.Contains(scrape, "\nwarren_peer_renewals_total 1\n") {
		t.Errorf("not renewed once:\n%s", scrape)
	}
	c.mustVerify(2 * 4 * 2 * 3)
}

// tunnels returns the processes of a node's tunnels.
func tunnels(t testing.TB, c *testLab, node string) (pids []int) {
	t.Helper()
	for line := range strings.Lines(c.mustExec(node, "ip", "netns", "pids", c.node(node).Namespace)) {
		text, _ := os.ReadFile("/proc/" + strings.TrimSpace(line) + "/cmdline")
		if args := strings.Split(string(text), "\x00"); len(args) > 1 && args[1] == "tunnel" {
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}
