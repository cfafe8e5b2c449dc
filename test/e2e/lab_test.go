package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"warren/internal/lab"
)

// TestExec: what runs in a lab is the command itself, in the right place.
func TestExec(t *testing.T) {
	t.Parallel()
	c := up(t, "exec", "--nodes", "2", "--pods", "1")
	tests := []struct {
		name, place, command string
		want                 result
	}{
		{name: "exit code", place: "n1", command: "exit 7", want: result{code: 7}},
		{name: "both outputs", place: "n2/p1", command: "echo out; echo err >&2", want: result{stdout: "out\n", stderr: "err\n"}},
		{name: "a node's network", place: "n2", command: "ip -o -4 address show dev eth0 | awk '{print $4}'", want: result{stdout: "10.10.0.2/24\n"}},
		{name: "a pod's network", place: "n2/p1", command: "ip -o -4 address show dev eth0 | awk '{print $4}'", want: result{stdout: "10.42.2.11/24\n"}},
		{name: "the switch", place: "wire", command: "ls /sys/class/net | grep -x -e n1 -e n2", want: result{stdout: "n1\nn2\n"}},
		{name: "the node's own sockets of WireGuard", place: "n1", command: "ls /var/run/wireguard", want: result{stdout: "warren0.sock\n"}},
		{name: "the node's own pins", place: "n1", command: "ls -d /sys/fs/bpf/warren", want: result{stdout: "/sys/fs/bpf/warren\n"}},
		{name: "the node's own agent", place: "n2", command: warren + " status | head -1 | tr -s ' '", want: result{stdout: "node n2 (cluster default)\n"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := c.in(t).exec(test.place, "sh", "-c", test.command); got != test.want {
				t.Errorf("%s on %s = %+v, want %+v", test.command, test.place, got, test.want)
			}
		})
	}
	for _, place := range []string{"n3", "n1/p2", "p1", ""} {
		if got := c.exec(place, "true"); got.code != 2 || !strings.Contains(got.stderr, "nodes n1 n2, pods n1/p1 to n1/p1 on each") {
			t.Errorf("place %q: %+v, want exit code 2 and what there is", place, got)
		}
	}
}

// TestStatus: what a lab says of itself, ready and not.
func TestStatus(t *testing.T) {
	t.Parallel()
	c := up(t, "status", "--nodes", "2", "--pods", "1")
	ask := func() (lab.Status, int) {
		r := c.run("status", "-o", "json")
		var status lab.Status
		if err := json.Unmarshal([]byte(r.stdout), &status); err != nil {
			t.Fatal(err)
		}
		return status, r.code
	}
	status, code := ask()
	if code != 0 || len(status.Nodes) != 2 || !status.Ready() {
		t.Errorf("exit code %d, %+v, want two ready nodes", code, status)
	}
	for _, node := range status.Nodes {
		if node.Agent == nil || node.Agent.PID != c.pid(node.Name) || node.Agent.Peers != 1 || len(node.Pods) != 1 {
			t.Errorf("node %+v, want one peer and one pod", node)
		}
	}
	c.must("agent", "kill", "n2")
	if status, code = ask(); code != 1 || status.Nodes[1].Agent.PID != 0 || status.Nodes[1].Agent.Ready {
		t.Errorf("exit code %d, %+v, want n2 without an agent", code, status.Nodes[1].Agent)
	}
	if second := c.run("up"); second.code != 1 || !strings.Contains(second.stderr, "remove it with 'warren lab down --name "+c.name+"'") {
		t.Errorf("a second up: %+v, want it to say what to do", second)
	}
}

// TestParallelLabs: labs of different names are built side by side and do not notice each other.
func TestParallelLabs(t *testing.T) {
	t.Parallel()
	var labs []*testLab
	for _, name := range []string{"side-a", "side-b", "side-c"} {
		labs = append(labs, newTestLab(t, name))
	}
	var building sync.WaitGroup
	results := make([]result, len(labs))
	for i, c := range labs {
		building.Go(func() { results[i] = c.run("up", "--nodes", "2", "--pods", "1") })
	}
	building.Wait()
	for i, r := range results {
		if r.code != 0 {
			t.Fatalf("%s: %s", labs[i].name, r.stderr)
		}
	}
	labs[0].mustVerify(2 * 4 * 2 * 3)
	labs[1].down()
	labs[1].down() // again, when it is gone
	if left := leftovers(labs[1].name); len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
	labs[2].mustVerify(2 * 4 * 2 * 3)
}

// TestDownEndsEverything: also what a user has left running in the lab, and what ignores SIGTERM.
func TestDownEndsEverything(t *testing.T) {
	t.Parallel()
	c := up(t, "leftover", "--nodes", "2", "--pods", "1")
	for place, command := range map[string]string{"n1": "sleep 600", "n2/p1": "trap '' TERM; while :; do sleep 0.1; done", "wire": "cd /run/warren-lab && exec sleep 600"} {
		process := exec.Command(warren, "lab", "exec", "--name", c.name, place, "--", "sh", "-c", command)
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { _ = process.Wait() }()
	}
	time.Sleep(300 * time.Millisecond)
	c.down()
	if left := leftovers(c.name); len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
}

// TestHalfFailedUp: an agent that ends at once, and an up that is killed at any point. The lab says
// so, and down leaves nothing.
func TestHalfFailedUp(t *testing.T) {
	t.Parallel()
	t.Run("the agents end at once", func(t *testing.T) {
		c := newTestLab(t, "half-false")
		r := c.run("up", "--binary", "/bin/false")
		if r.code != 1 || !strings.Contains(r.stderr, "the agent of n1 is not ready: it has ended") || !strings.Contains(r.stderr, "warren lab down --name "+c.name) {
			t.Errorf("up = %+v, want an error that says why and what to do", r)
		}
		if r := c.run("status"); r.code != 1 {
			t.Errorf("status = %+v, want exit code 1", r)
		}
	})
	t.Run("there is no such binary", func(t *testing.T) {
		c := newTestLab(t, "half-none")
		if r := c.run("up", "--binary", "/no/such/file"); r.code == 0 {
			t.Errorf("up = %+v, want an error", r)
		}
		if left := leftovers(c.name); len(left) > 0 {
			t.Errorf("left behind even without down:\n%s", strings.Join(left, "\n"))
		}
	})
	for _, after := range []time.Duration{20, 60, 120, 200, 350, 600} {
		t.Run("killed after "+(after*time.Millisecond).String(), func(t *testing.T) {
			c := newTestLab(t, "half-killed")
			process := exec.Command(warren, "lab", "up", "--name", c.name)
			if err := process.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(after * time.Millisecond)
			_ = process.Process.Kill()
			_ = process.Wait()
			c.down() // newTestLab looks for what is left
		})
	}
	t.Run("interrupted", func(t *testing.T) {
		c := newTestLab(t, "half-interrupted")
		process := exec.Command(warren, "lab", "up", "--name", c.name, "--nodes", "20")
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
		_ = process.Process.Signal(syscall.SIGINT)
		if err := process.Wait(); err == nil {
			t.Error("up succeeded in spite of SIGINT")
		}
	})
}

// TestMachineIsAsBefore: on a machine that never had a network namespace, the last lab takes along
// what `ip netns` and WireGuard need; as long as another lab is there, it stays.
func TestMachineIsAsBefore(t *testing.T) {
	t.Parallel()
	needRoot(t)
	needTool(t, "unshare")
	script := `
mount -t tmpfs none /run
find /run >"$DIR/before"
"$WARREN" lab up --name "$NAME-a" --nodes 2 --pods 1
"$WARREN" lab up --name "$NAME-b" --nodes 2 --pods 1 --no-encryption
"$WARREN" lab down --name "$NAME-b"
"$WARREN" lab verify --name "$NAME-a"
"$WARREN" lab down --name "$NAME-a"
find /run >"$DIR/after"
cmp "$DIR/before" "$DIR/after"
`
	command := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-eu", "-c", script)
	command.Env = append(os.Environ(), "WARREN="+warren, "DIR="+t.TempDir(), fmt.Sprintf("NAME=first-%d", os.Getpid()))
	if output, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}
