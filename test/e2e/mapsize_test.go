package e2e

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestFullMap: a map without room is an alarm that names the option to raise. What is in it stays in
// force, and raising the option is a restart, not a gap.
func TestFullMap(t *testing.T) {
	c := up(t, "fullmap", "--nodes", "2", "--pods", "1")
	c.must("agent", "stop", "n1")
	stop := startAgent(t, c, "n1", "--facts", twelve, "--ipcache-max-addresses", "16")
	c.run("join", "--wait", "5s") // n1 does not become ready
	eventually(t, 20*time.Second, "the alarm", func() bool { return strings.Contains(problems(c, "n1"), "raise ipcache.max-addresses") })
	if c.status("n1").Ready {
		t.Error("n1 says that it is ready")
	}
	scrape := c.mustExec("n1", "curl", "-s", "http://127.0.0.1:9880/metrics")
	for _, want := range []string{`warren_map_max_entries{option="ipcache.max-addresses"} 16`, `warren_map_entries{option="ipcache.max-addresses"} 16`} {
		if !strings.Contains(scrape, want) {
			t.Errorf("not in the metrics: %s", want)
		}
	}
	c.mustVerify(48, "--from", "n1,n2", "--to", "n1,n2")
	stop()

	startAgent(t, c, "n1", "--facts", twelve, "--ipcache-max-addresses", "64")
	eventually(t, 20*time.Second, "the end of the alarm", func() bool { return c.status("n1").Ready && problems(c, "n1") == "" })
	c.mustVerify(144)
}

// twelve addresses of nobody fill a map of 16, with the two addresses of each of two nodes.
const twelve = "192.0.2.1,192.0.2.2,192.0.2.3,192.0.2.4,192.0.2.5,192.0.2.6,192.0.2.7,192.0.2.8,192.0.2.9,192.0.2.10,192.0.2.11,192.0.2.12"

// startAgent runs a node's agent with flags of its own, until stop or the end of the test.
func startAgent(t testing.TB, c *testLab, node string, flags ...string) (stop func()) {
	t.Helper()
	return startBinary(t, c, warren, node, flags...)
}

// startBinary starts the agent of another build.
func startBinary(t testing.TB, c *testLab, binary, node string, flags ...string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	args := append([]string{"lab", "exec", "--name", c.name, node, "--", binary, "agent", "--config", c.open().ConfigPath(node)}, flags...)
	command := exec.CommandContext(ctx, warren, args...)
	var log bytes.Buffer
	command.Stderr = &log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		cancel()
		_ = command.Wait()
		if t.Failed() {
			t.Logf("agent of %s with %s:\n%s", node, strings.Join(flags, " "), log.String())
		}
	}
	t.Cleanup(stop)
	eventually(t, 30*time.Second, "the agent answers", func() bool { return c.status(node).PID != 0 })
	return stop
}

func problems(c *testLab, name string) string {
	var all []string
	for _, p := range c.status(name).Problems {
		all = append(all, p.Where+": "+p.Message+"; "+p.Remedy)
	}
	return strings.Join(all, "\n")
}
