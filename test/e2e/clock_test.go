package e2e

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"warren/internal/api"
	"warren/internal/lab"
	"warren/internal/lab/control"
	"warren/test/admin"
	"warren/test/clock"
)

const year = 365 * 24 * time.Hour

// shiftNodes gives the agents and tunnel processes of nodes another time of day.
func (c *testLab) shiftNodes(by time.Duration, nodes ...string) {
	c.t.Helper()
	for _, node := range nodes {
		c.shift(by, append(tunnels(c.t, c, node), c.pid(node))...)
	}
}

func (c *testLab) shift(by time.Duration, pids ...int) {
	c.t.Helper()
	for _, pid := range pids {
		if err := clock.Shift(pid, by); err != nil {
			c.t.Fatal(err)
		}
	}
}

// renew makes the sessions of a node too old to encrypt with, so that it begins new ones. What others have encrypted
// before is still decrypted. It may need a second attempt, after five seconds.
//
// A device that is given another private key expires its sessions; one that is given its own again has what it had,
// the times of its peers' handshakes included.
func (c *testLab) renew(node string) {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(lab.BaseDir, c.name, node, "state", "private.key"))
	if err != nil {
		c.t.Fatal(err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		c.t.Fatal(err)
	}
	configureDevice(c.t, c, node, "private_key="+strings.Repeat("5a", 32)+"\nprivate_key="+hex.EncodeToString(key)+"\n")
}

// TestKubeClockJumps: the time of day of parts of a cluster jumps, in strict mode: no packet is lost, nothing is in
// clear, and what the API server is told arrives.
func TestKubeClockJumps(t *testing.T) {
	t.Parallel()
	clock.Need(t)
	c := upKube(t, "kclock", "--pods", "1", "--mode", "strict")
	plane, ten := c.control(), []time.Duration{10 * time.Second, -10 * time.Second, 0}
	for i, test := range []struct {
		name    string
		control bool // etcd and the API server
		nodes   []string
		jumps   []time.Duration
	}{
		{"the control plane, by 10 s", true, nil, ten},
		{"a node, by 10 s", false, []string{"n2"}, ten},
		{"a node, by a year", false, []string{"n3"}, []time.Duration{-year, year, 0}},
		{"everything, by 10 s", true, []string{"n1", "n2", "n3"}, ten},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := c.in(t)
			w := watch(t, c)
			for j, by := range test.jumps {
				if test.control {
					c.shift(by, plane.PID(control.Etcd), plane.PID(control.APIServer))
				}
				c.shiftNodes(by, test.nodes...)
				c.mustFollow(fmt.Sprintf("203.0.113.%d/32", 10*i+j))
			}
			w.finish(t)
			c.mustSettle(3)
		})
	}
	c.kubectl("delete", "warrennode", "ghost")
	c.must("join")
	c.mustSettle(4)
	c.mustVerify(12 * 4 * 2 * 3)
}

// mustFollow expects that what the API server is told arrives at all agents: that a prefix is behind a machine, which is
// not there.
func (c *testLab) mustFollow(prefix string) {
	c.t.Helper()
	ghost := admin.Many(1)
	ghost.ID.Name, ghost.Prefixes = "ghost", []netip.Prefix{netip.MustParsePrefix(prefix)}
	c.apply(admin.WarrenNode(ghost))
	for _, node := range c.open().Topology.Nodes {
		eventually(c.t, time.Minute, node.Name+" knows of "+prefix, func() bool {
			return slices.ContainsFunc(c.status(node.Name).Peers, func(p api.Peer) bool {
				return p.Node == "ghost" && slices.Contains(p.AllowedIPs, prefix)
			})
		})
	}
}

// TestClockIsPutRight: machines began their sessions a year ahead of the time, and have the right time when they need new
// ones. Whoever has seen such a handshake answers no earlier one of the same key (section 5.1 of the WireGuard paper), as
// long as his device has the peer.
func TestClockIsPutRight(t *testing.T) {
	t.Parallel()
	clock.Need(t)
	for _, test := range []struct {
		name, lab string
		ahead     []string
		// renew takes the sessions away when the clocks are right.
		renew func(*testing.T, *testLab)
	}{
		// Its peers begin new ones when what they send is not answered for 15 s.
		{"one machine, which starts again", "right1", []string{"n1"}, func(t *testing.T, c *testLab) { killTunnels(t, c, "n1") }},
		// Nobody can begin one until the agents set their peers up anew: three probes missed, and 10 s.
		{"all machines", "right2", []string{"n1", "n2"}, func(_ *testing.T, c *testLab) { c.renew("n1"); c.renew("n2") }},
		// These agents have never been answered themselves.
		{"all machines, and their agents start again", "right3", []string{"n1", "n2"}, func(_ *testing.T, c *testLab) {
			c.must("agent", "kill", "n1", "n2")
			c.renew("n1")
			c.renew("n2")
			c.must("agent", "start", "n1", "n2")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := up(t, test.lab, "--nodes", "2", "--pods", "1", "--mode", "strict")
			n1, server := c.node("n1"), netip.AddrPortFrom(c.node("n2").Addresses[0], otherPort)
			serveEcho(t, c.node("n2").Namespace, server)
			works := func() bool { return echoes(n1.Namespace, server, time.Second) }
			c.shiftNodes(year, test.ahead...)
			for _, node := range test.ahead {
				c.renew(node)
				eventually(t, 30*time.Second, node+" has a session that it began a year ahead", works)
			}
			c.shiftNodes(0, test.ahead...)
			test.renew(t, c)
			took := eventually(t, time.Minute, "n1 reaches n2 again", works)
			t.Logf("n1 did not reach n2 for %v", took)
			c.mustVerify(2 * 4 * 2 * 3)
		})
	}
}

// killTunnels ends the tunnel processes of a node, whose agent starts new ones.
func killTunnels(t *testing.T, c *testLab, node string) {
	t.Helper()
	for _, pid := range tunnels(t, c, node) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
}
