package e2e

import (
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

// tunnels returns the processes of a node's tunnels.
func tunnels(t *testing.T, c *testLab, node string) (pids []int) {
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
