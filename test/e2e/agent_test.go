package e2e

import (
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"warren/internal/api"
	"warren/internal/cluster"
	"warren/internal/lab"
	"warren/test/flow"
)

// TestAgent goes through the life of agents in one lab: idle, dying under traffic, stopped, repaired,
// and at last cleaned up.
func TestAgent(t *testing.T) {
	t.Parallel()
	needTool(t, "tc")
	c := up(t, "agent")
	// Each step starts with all agents running and leaves them so, but the last.
	t.Run("idle", func(t *testing.T) { idle(t, c.in(t)) })
	t.Run("no packet is lost", func(t *testing.T) { noLoss(t, c.in(t)) })
	t.Run("datapath outlives its agent", func(t *testing.T) { outlives(t, c.in(t)) })
	t.Run("drift", func(t *testing.T) { drift(t, c.in(t)) })
	t.Run("cleanup", func(t *testing.T) { cleanup(t, c.in(t)) })
}

// in is the same lab in a subtest.
func (c *testLab) in(t *testing.T) *testLab { return &testLab{t: t, name: c.name} }

// Limits of an idle agent.
const (
	idleShare  = 0.01     // of a core
	idleMemory = 60 << 20 // bytes resident
	binarySize = 60 << 20
)

func idle(t *testing.T, c *testLab) {
	info, err := os.Stat(warren)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > binarySize {
		t.Errorf("the binary has %d MiB, more than %d", info.Size()>>20, binarySize>>20)
	}
	time.Sleep(2 * time.Second) // what starting has left to do
	const span = 10 * time.Second
	before := map[string]time.Duration{}
	nodes := []string{"n1", "n2", "n3"}
	for _, node := range nodes {
		before[node] = cpuTime(t, c.pid(node))
	}
	time.Sleep(span)
	for _, node := range nodes {
		pid := c.pid(node)
		used, memory := cpuTime(t, pid)-before[node], residentMemory(t, pid)
		t.Logf("agent of %s: %v of CPU in %v, %d MiB resident", node, used, span, memory>>20)
		if share := used.Seconds() / span.Seconds(); share >= idleShare {
			t.Errorf("the agent of %s takes %.1f %% of a core, idle", node, 100*share)
		}
		if memory >= idleMemory {
			t.Errorf("the agent of %s has %d MiB resident", node, memory>>20)
		}
	}
}

// cpuTime reads fields 14 and 15 of /proc/PID/stat (proc(5)), in ticks of 10 ms.
func cpuTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	// The second field is the name in brackets and may contain anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// cpu returns how much of a core, in percent, processes take from now on until it is asked.
func cpu(t testing.TB, pids ...int) (share func() float64) {
	t.Helper()
	used := func() (sum time.Duration) {
		for _, pid := range pids {
			sum += cpuTime(t, pid)
		}
		return sum
	}
	start, before := time.Now(), used()
	return func() float64 { return 100 * (used() - before).Seconds() / time.Since(start).Seconds() }
}

func residentMemory(t testing.TB, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, _ := strconv.Atoi(strings.Fields(string(text))[1])
	return pages * os.Getpagesize()
}

// noLoss kills and restarts agents under traffic in both directions, of hosts and of pods.
func noLoss(t *testing.T, c *testLab) {
	n1, n2 := c.node("n1"), c.node("n2")
	streams := []*flow.Stream{
		flow.StartStream(t, flow.Host(n1, 0), flow.Host(n2, 0)), flow.StartStream(t, flow.Host(n2, 0), flow.Host(n1, 0)),
		flow.StartStream(t, flow.Pod(n1, 0), flow.Pod(n2, 0)), flow.StartStream(t, flow.Pod(n2, 1), flow.Pod(n1, 1)),
	}
	time.Sleep(500 * time.Millisecond)
	c.must("agent", "kill", "n1")
	time.Sleep(500 * time.Millisecond)
	c.must("agent", "start", "n1")
	time.Sleep(500 * time.Millisecond)
	c.must("agent", "restart", "n2")
	c.must("agent", "kill", "n1", "n2")
	time.Sleep(500 * time.Millisecond)
	c.must("agent", "start", "n1", "n2")
	time.Sleep(500 * time.Millisecond)
	for _, s := range streams {
		s.Finish(t)
	}
	c.mustVerify(allRows)
}

// outlives: SIGTERM leaves the datapath in place, and the next agent adopts it.
func outlives(t *testing.T, c *testLab) {
	c.must("agent", "stop", "n1", "n2", "n3")
	if pid := c.pid("n1"); pid != 0 {
		t.Errorf("the agent of n1 still runs, pid %d", pid)
	}
	c.mustVerify(allRows)
	c.must("agent", "start", "n1", "n2", "n3")
	for _, name := range []string{"n1", "n2", "n3"} {
		scrape := c.mustExec(name, "curl", "-s", "http://127.0.0.1:9880/metrics")
		if !strings.Contains(scrape, "\nwarren_operations_total 0\n") {
			t.Errorf("the agent of %s has written to the kernel what was there already", name)
		}
	}
	c.mustVerify(allRows)
}

// healTime is how long what somebody broke may stay broken.
const healTime = 30 * time.Second

// drift breaks what an agent has built, behind its back.
func drift(t *testing.T, c *testLab) {
	for _, test := range []struct {
		name string
		do   func(*testing.T, *testLab)
	}{
		{"the device is deleted", func(t *testing.T, c *testLab) {
			c.mustExec("n1", "ip", "link", "delete", "warren0")
			eventually(t, healTime, "warren0 is back", func() bool { return c.exec("n1", "ip", "link", "show", "warren0").code == 0 })
		}},
		{"the program is detached", func(t *testing.T, c *testLab) {
			detachEgress(t, c, "n1")
			eventually(t, healTime, "the egress program is back", func() bool {
				return tcxPrograms(t, c, "n1", "eth0", unix.BPF_TCX_EGRESS) == 1
			})
		}},
		{"a peer is removed", func(t *testing.T, c *testLab) {
			removePeer(t, c, "n1", "n2")
			eventually(t, 5*time.Second, "the peer is gone", func() bool { return !slices.Contains(c.peers("n1"), "n2") })
			eventually(t, healTime, "the peer is back", func() bool { return slices.Contains(c.peers("n1"), "n2") })
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := c.in(t)
			test.do(t, c)
			eventually(t, healTime, "n1 is ready", func() bool { return c.status("n1").Ready && len(c.peers("n1")) == 2 })
			c.mustVerify(allRows)
		})
	}
}

// detachEgress forces the program off the node's underlay device.
func detachEgress(t *testing.T, c *testLab, node string) {
	t.Helper()
	pins, _ := filepath.Glob(filepath.Join(c.open().PinDir(node), "links", "to_netdev-*"))
	if len(pins) != 1 || tcxPrograms(t, c, node, "eth0", unix.BPF_TCX_EGRESS) != 1 {
		t.Fatalf("egress links of %s: %v, want one, attached", node, pins)
	}
	detachLink(t, pins[0])
	if left := tcxPrograms(t, c, node, "eth0", unix.BPF_TCX_EGRESS); left != 0 {
		t.Fatalf("%d programs are still attached", left)
	}
}

// removePeer takes a peer off the device of a node.
func removePeer(t *testing.T, c *testLab, node, peer string) {
	t.Helper()
	configureDevice(t, c, node, "public_key="+hexKey(t, peerOf(t, c, node, peer))+"\nremove=true\n")
}

// peerOf returns a peer of a node.
func peerOf(t *testing.T, c *testLab, node, peer string) api.Peer {
	t.Helper()
	peers := c.status(node).Peers
	at := slices.IndexFunc(peers, func(p api.Peer) bool { return p.Node == peer })
	if at < 0 {
		t.Fatalf("%s has no peer %s", node, peer)
	}
	return peers[at]
}

func hexKey(t *testing.T, peer api.Peer) string {
	t.Helper()
	key, err := cluster.ParsePublicKey(peer.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(key[:])
}

// configureDevice changes the device of a node by WireGuard's own configuration protocol, behind its agent's back.
func configureDevice(t testing.TB, c *testLab, node, lines string) {
	t.Helper()
	connection, err := net.Dial("unix", filepath.Join(lab.BaseDir, c.name, node, "wireguard", "warren0.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	fmt.Fprintf(connection, "set=1\n%s\n", lines)
	answer := make([]byte, 64)
	n, err := connection.Read(answer)
	if got := strings.TrimSpace(string(answer[:n])); err != nil || got != "errno=0" {
		t.Fatalf("configure the device: %q, %v", got, err)
	}
}

// cleanup after kill -9 leaves nothing of Warren on the nodes but the key and the log.
func cleanup(t *testing.T, c *testLab) {
	nodes := []string{"n1", "n2", "n3"}
	c.must("agent", append([]string{"kill"}, nodes...)...)
	for _, node := range nodes {
		c.mustExec(node, warren, "cleanup")
		if diff := cmp.Diff([]string(nil), warrenOn(c, node)); diff != "" {
			t.Errorf("what cleanup left on %s (-want +got):\n%s", node, diff)
		}
		c.mustExec(node, warren, "cleanup") // again, when there is nothing
	}
	report := c.verify("--class", "host-host")
	for _, row := range report.Rows {
		if !row.Delivered || row.ClearFrames == 0 {
			t.Errorf("%s to %s, %s %s after cleanup: %+v, want it delivered in clear", row.From, row.To, row.Family, row.Protocol, row)
		}
	}
}

// warrenOn lists what of Warren is on a node.
func warrenOn(c *testLab, node string) []string {
	var found []string
	for line := range strings.Lines(c.mustExec(node, "ip", "-o", "link", "show")) {
		if strings.Contains(line, "warren0") {
			found = append(found, "device: "+line)
		}
	}
	for _, side := range []uint32{unix.BPF_TCX_INGRESS, unix.BPF_TCX_EGRESS} {
		if programs := tcxPrograms(c.t, c, node, "eth0", side); programs > 0 {
			found = append(found, fmt.Sprintf("%d programs at side %d of eth0", programs, side))
		}
	}
	if qdiscs := c.mustExec(node, "tc", "qdisc", "show", "dev", "eth0"); strings.Contains(qdiscs, "clsact") {
		found = append(found, qdiscs)
	}
	root := filepath.Join(lab.BaseDir, c.name, node)
	for _, pattern := range []string{"bpf/warren", "run/*", "wireguard/*"} {
		files, _ := filepath.Glob(filepath.Join(root, pattern))
		found = append(found, files...)
	}
	if record := c.open().RecordPath(node); fileExists(record) {
		found = append(found, record)
	}
	for line := range strings.Lines(c.mustExec(node, "ip", "netns", "pids", c.node(node).Namespace)) {
		name, _ := os.ReadFile("/proc/" + strings.TrimSpace(line) + "/comm")
		if strings.HasPrefix(string(name), "warren") {
			found = append(found, "process: "+strings.TrimSpace(line))
		}
	}
	return found
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
