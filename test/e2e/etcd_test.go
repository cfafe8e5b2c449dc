package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"warren/internal/lab/control"
	"warren/internal/lab/control/controltest"
)

// TestKubeEtcd: a cluster in strict mode whose nodes find each other by an etcd on n1, over the wire that they encrypt.
func TestKubeEtcd(t *testing.T) {
	t.Parallel()
	needTool(t, "nft")
	controltest.Need(t)
	folder, err := control.FindBinaries("")
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(folder, string(control.Etcd))
	c := up(t, "etcd", "--nodes", "3", "--pods", "1", "--mode", "strict")
	names := []string{"n1", "n2", "n3"}
	for _, name := range names { // nobody knows anybody
		c.must("agent", "stop", name)
		c.mustExec(name, warren, "cleanup", "--purge", "--config", c.open().ConfigPath(name))
	}
	url := fmt.Sprintf("http://%s:2379", c.node("n1").Addresses[0])
	kill := startEtcd(t, c, binary, url)
	flags := []string{"--discovery", "etcd", "--etcd-endpoints", url, "--etcd-lease", "5s"}
	knows := func(name string, peers ...string) {
		t.Helper()
		eventually(t, time.Minute, fmt.Sprintf("%s encrypts to %v", name, peers), func() bool { return slices.Equal(c.peers(name), peers) })
	}
	says := func(name, part string) {
		t.Helper()
		eventually(t, time.Minute, name+" says: "+part, func() bool { return strings.Contains(problems(c, name), part) })
	}
	quiet := func(name string) {
		t.Helper()
		eventually(t, time.Minute, name+" has no problem", func() bool { return problems(c, name) == "" })
	}

	stop := map[string]func(){}
	for _, name := range names[:2] {
		stop[name] = startAgent(t, c, name, flags...)
	}
	knows("n1", "n2")
	knows("n2", "n1")

	// The tunnel of n3 to etcd's node cannot come up; its way to etcd is the exception.
	c.mustExec("n1", "nft", "table inet block { chain in { type filter hook input priority 0; udp dport 51880 ip saddr != "+c.node("n2").Addresses[0].String()+" drop; }; }")
	stop["n3"] = startAgent(t, c, "n3", flags...)
	knows("n3", "n2")
	if c.reason("n3", "bootstrap") == 0 {
		t.Error("n3 did not use the exception")
	}
	c.mustExec("n1", "nft", "delete table inet block")
	for _, name := range names {
		knows(name, slices.DeleteFunc(slices.Clone(names), func(other string) bool { return other == name })...)
		quiet(name)
	}
	c.mustVerify(6 * 4 * 2 * 3)

	// An agent is away for longer than its lease. Its machine goes on encrypting, and so do its peers, those too
	// that start anew meanwhile.
	stop["n3"]()
	says("n1", "keys ran out (default/n3)")
	stop["n1"]()
	stop["n1"] = startAgent(t, c, "n1", flags...)
	says("n1", "keys ran out (default/n3)")
	knows("n1", "n2", "n3")
	c.mustVerify(6 * 4 * 2 * 3)
	stop["n3"] = startAgent(t, c, "n3", flags...)
	quiet("n1")

	// etcd is away, and comes back with nothing.
	kill()
	says("n2", "no session with etcd since ")
	c.mustVerify(6 * 4 * 2 * 3)
	startEtcd(t, c, binary, url)
	for _, name := range names {
		quiet(name)
	}
	c.mustVerify(6 * 4 * 2 * 3)

	// A machine leaves, and says so.
	c.mustExec("n3", warren, "leave", "--config", c.open().ConfigPath("n3"), "--discovery", "etcd", "--etcd-endpoints", url)
	knows("n1", "n2")
	knows("n2", "n1")
	quiet("n1")
}

// startEtcd runs an etcd without data on n1, until kill.
func startEtcd(t *testing.T, c *testLab, binary, url string) (kill func()) {
	t.Helper()
	command := exec.Command(warren, "lab", "exec", "--name", c.name, "n1", "--", binary,
		"--data-dir", t.TempDir(), "--unsafe-no-fsync", "--log-level", "error", "--listen-client-urls", url, "--advertise-client-urls", url)
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	}
	t.Cleanup(kill)
	return kill
}
