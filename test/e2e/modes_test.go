package e2e

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"warren/test/flow"
)

// modeTime is how long a change of mode may take until every peer follows.
const modeTime = 30 * time.Second

// setMode sets the mode of all nodes, one after the other, and waits until every peer follows.
func (c *testLab) setMode(mode string, nodes []string) {
	c.t.Helper()
	for _, node := range nodes {
		c.mustExec(node, warren, "mode", "set", mode)
	}
	for _, node := range nodes {
		eventually(c.t, modeTime, fmt.Sprintf("%s is in %s mode with all its peers", node, mode), func() bool {
			status := c.status(node)
			follows := 0
			for _, peer := range status.Peers {
				if peer.Encrypting == (mode != "observe") && peer.Enforcing == (mode == "strict") && peer.Mode == mode {
					follows++
				}
			}
			return status.Mode == mode && follows == len(nodes)-1
		})
	}
}

// TestModesUnderTraffic switches a running cluster through all modes and takes it down again, with traffic between
// all pairs all the time: clear, observe, permissive, strict, permissive, left. WARREN_MODES_NODES is how many nodes it
// has: six tunnel processes with 12,000 packets a second need more than two processors.
func TestModesUnderTraffic(t *testing.T) {
	count := cmp.Or(os.Getenv("WARREN_MODES_NODES"), "3")
	c := up(t, "modes", "--nodes", count, "--pods", "1", "--mode", "observe")
	nodes := c.open().Topology.Nodes
	var names []string
	for _, node := range nodes {
		names = append(names, node.Name)
	}
	c.must("agent", append([]string{"stop"}, names...)...)
	for _, name := range names {
		c.mustExec(name, warren, "cleanup")
	}
	flows := flow.Between(t, nodes)
	c.must("agent", append([]string{"start"}, names...)...)
	for _, mode := range []string{"permissive", "strict"} {
		c.setMode(mode, names)
		c.mustVerify(2*4*2*3, "--from", "n1", "--to", "n2,n3") // no flow of the others is in clear either
	}
	c.setMode("permissive", names)
	c.logDrops(names)
	for _, name := range names {
		if out := c.mustExec(name, warren, "leave"); !strings.Contains(out, "every peer has let go of it") {
			t.Errorf("%s: %s", name, out)
		}
	}
	for _, f := range flows {
		f.Finish(t)
	}
	for _, name := range names {
		if left := warrenOn(c, name); len(left) > 0 {
			t.Errorf("left on %s: %v", name, left)
		}
	}
}

// logDrops logs where packets were dropped, for when some are missing.
func (c *testLab) logDrops(names []string) {
	c.t.Helper()
	for _, name := range names {
		for _, reason := range c.status(name).Reasons {
			dropped := []string{"not_confirmed", "no_pair", "no_tunnel", "source_not_allowed", "clear_from_peer", "helper_failed", "malformed"}
			if reason.Packets > 0 && slices.Contains(dropped, reason.Reason) {
				c.t.Logf("%s: %s %s: %d packets", name, reason.Program, reason.Reason, reason.Packets)
			}
		}
		c.t.Logf("%s: %s%s", name, c.mustExec(name, "ip", "-s", "-o", "link", "show", "warren0"), c.exec(name, "nstat", "-az", "UdpRcvbufErrors", "UdpInErrors").stdout)
	}
}

// TestLeaveStrict: a node leaves a cluster in strict mode, under traffic, and the others accept its clear packets.
func TestLeaveStrict(t *testing.T) {
	t.Parallel()
	c := up(t, "leave", "--nodes", "3", "--pods", "1", "--mode", "strict")
	flows := flow.Between(t, c.open().Topology.Nodes)
	time.Sleep(2 * time.Second)
	c.mustExec("n3", warren, "leave")
	time.Sleep(time.Second)
	for _, f := range flows {
		f.Finish(t)
	}
	if left := warrenOn(c, "n3"); len(left) > 0 {
		t.Errorf("left on n3: %v", left)
	}
	for _, name := range []string{"n1", "n2"} {
		if got := c.peers(name); len(got) != 1 || got[0] == "n3" {
			t.Errorf("%s encrypts to %v", name, got)
		}
	}
}

// TestModeOfANode: a mode that was set survives a restart, SIGHUP reads the configuration anew, and what is wrong is
// said and changes nothing.
func TestModeOfANode(t *testing.T) {
	t.Parallel()
	c := up(t, "onemode", "--nodes", "2", "--pods", "1")
	mode := func() string { s := c.status("n1"); return s.Mode + " by " + s.ModeSource }
	expect := func(what, want string) {
		t.Helper()
		eventually(t, 10*time.Second, what+": "+want, func() bool { return mode() == want })
	}
	if got := c.mustExec("n1", warren, "mode", "set", "strict"); !strings.HasPrefix(got, "strict (by warren mode set") {
		t.Errorf("warren mode set printed %q", got)
	}
	expect("set", "strict by command")
	c.must("agent", "restart", "n1")
	expect("restarted", "strict by command")
	if r := c.exec("n1", warren, "mode", "set", "strickt"); r.code != 2 {
		t.Errorf("a mode that is none: exit code %d, %s", r.code, r.stderr)
	}
	c.mustExec("n1", warren, "mode", "reset")
	expect("reset", "permissive by configuration")

	path := c.open().ConfigPath("n1")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	reload := func(extra string) {
		write(t, path, append(slices.Clone(text), extra...))
		if err := syscall.Kill(c.pid("n1"), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	reload("mode: observe\n")
	expect("reloaded", "observe by configuration")
	reload("mode: strickt\n")
	eventually(t, 10*time.Second, "a broken configuration is a problem", func() bool { return strings.Contains(problems(c, "n1"), "not reloaded") })
	expect("after a broken configuration", "observe by configuration")
	reload("mode: permissive\nport: 51999\n")
	expect("reloaded again", "permissive by configuration")
	eventually(t, 10*time.Second, "what needs a restart is a problem", func() bool { return strings.Contains(problems(c, "n1"), "port changed") })
	c.mustVerify(2 * 4 * 2 * 3)
}
