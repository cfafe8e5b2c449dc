package e2e

import (
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warren/internal/lab"
	"warren/internal/lab/control"
	"warren/internal/lab/control/controltest"
	"warren/internal/lab/proof"
	"warren/internal/lab/wire"
	"warren/test/admin"
)

// upKube builds a lab with Kubernetes.
func upKube(t *testing.T, name string, args ...string) *testLab {
	t.Helper()
	controltest.Need(t)
	return up(t, name, append([]string{"--kube"}, args...)...)
}

// kubectl asks the API server as somebody on this machine does.
func (c *testLab) kubectl(args ...string) string {
	c.t.Helper()
	command := exec.CommandContext(c.t.Context(), c.kubectlPath(), append([]string{"--kubeconfig=" + c.open().Kubeconfig()}, args...)...)
	output, err := command.CombinedOutput()
	if err != nil {
		c.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return string(output)
}

// apply has the API server hold objects.
func (c *testLab) apply(objects ...admin.Fields) {
	c.t.Helper()
	list, err := json.Marshal(admin.Fields{"apiVersion": "v1", "kind": "List", "items": objects})
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.control().Kubectl(c.t.Context(), string(list), "apply", "--server-side", "--force-conflicts", "--filename=-"); err != nil {
		c.t.Fatal(err)
	}
}

// restartAPIServer starts the API server anew, with further arguments.
func restartAPIServer(t *testing.T, plane *control.Plane, arguments ...string) {
	t.Helper()
	plane.Options.Arguments = map[control.Component][]string{control.APIServer: arguments}
	if err := errors.Join(plane.KillComponent(t.Context(), control.APIServer), plane.StartComponent(t.Context(), control.APIServer)); err != nil {
		t.Fatal(err)
	}
}

// onNode asks the API server from a node, over the wire.
func (c *testLab) onNode(node string, args ...string) string {
	c.t.Helper()
	return c.mustExec(node, append([]string{c.kubectlPath()}, args...)...)
}

func (c *testLab) kubectlPath() string { return filepath.Join(c.open().Spec.Kube.Binaries, "kubectl") }

func (c *testLab) control() *control.Plane {
	c.t.Helper()
	plane, err := c.open().Control()
	if err != nil {
		c.t.Fatal(err)
	}
	return plane
}

// records are the nodes of which the API server has a record.
func (c *testLab) records() []string {
	c.t.Helper()
	return strings.Fields(c.kubectl("get", "warrennodes", "-o", "jsonpath={.items[*].metadata.name}"))
}

// TestKubeWire: what a node says to the API server and hears from it crosses the wire: in a lab without encryption as TCP
// of the API server's port, in one with it as WireGuard's alone.
func TestKubeWire(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		args  []string
		clear bool
	}{
		{name: "without encryption", args: []string{"--no-encryption"}, clear: true},
		{name: "strict", args: []string{"--mode", "strict"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := upKube(t, "kwire-"+test.name[:1], append(test.args, "--nodes", "2", "--pods", "1")...)
			topology := c.open().Topology
			capture, err := wire.Listen(topology.Wire, topology.Bridges(), wire.Options{Cluster: proof.ClusterOf(topology)})
			if err != nil {
				t.Fatal(err)
			}
			if got, want := c.onNode("n2", "get", "nodes", "-o", "name"), "node/n1\nnode/n2\n"; got != want {
				t.Errorf("n2 hears of the nodes %q, want %q", got, want)
			}
			frames, err := capture.Close()
			if err != nil {
				t.Fatal(err)
			}
			api, server := map[wire.Kind]int{}, c.control().Server()
			for _, frame := range frames {
				if frame.Kind != wire.Clear || frame.Flow.Source == server || frame.Flow.Destination == server {
					api[frame.Kind]++
				}
			}
			// A request with TLS takes more than ten frames.
			if (api[wire.Clear] > 10) != test.clear || (api[wire.WireGuard] > 10) == test.clear || !test.clear && api[wire.Clear] > 0 {
				t.Errorf("%d frames of the API server in clear, %d of WireGuard", api[wire.Clear], api[wire.WireGuard])
			}
		})
	}
}

// TestKubeMatrix: in strict mode, with the records in the API server and pods attached by CNI plugins, nothing is in clear
// and everything arrives; also after nodes went off and came back, the one with the control plane too, and after one left
// and another came.
func TestKubeMatrix(t *testing.T) {
	t.Parallel()
	for _, cni := range []string{"routes", "vxlan"} {
		t.Run(cni, func(t *testing.T) {
			t.Parallel()
			c := upKube(t, "kube-"+cni, "--cni", cni, "--mode", "strict")
			c.mustVerify(allRows)
			if diff := cmp.Diff([]string{"n1", "n2", "n3"}, c.records()); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			asN2 := "--kubeconfig=" + filepath.Join(lab.BaseDir, c.name, "n2", "kubeconfig")
			c.onNode("n2", asN2, "annotate", "warrennode", "n2", "mine=yes")
			if got := c.exec("n2", c.kubectlPath(), asN2, "annotate", "warrennode", "n1", "mine=no"); got.code == 0 || !strings.Contains(got.stderr, "writes WarrenNode n2 only") {
				t.Errorf("n2 writes the record of n1: %+v", got)
			}
			var status lab.Status
			if err := json.Unmarshal([]byte(c.must("status", "-o", "json")), &status); err != nil || status.Control == nil || !status.Control.Ready {
				t.Errorf("status %+v: %v", status.Control, err)
			}
			if got := c.run("leave", "n1"); got.code != 1 || !strings.Contains(got.stderr, "it runs the control plane") {
				t.Errorf("leave n1: %+v", got)
			}
			for _, args := range [][]string{{"n2"}, {"n1"}, {"n2", "--lose-disk"}} {
				c.must("reboot", args...)
				c.mustSettle(3)
			}
			c.must("leave", "n3")
			if got := c.records(); !slices.Equal(got, []string{"n1", "n2"}) {
				t.Errorf("records after n3 left: %v", got)
			}
			c.mustSettle(2)
			c.must("join")
			c.mustSettle(3)
			c.mustVerify(allRows)
		})
	}
}

// mustSettle waits until every agent encrypts to all others of as many nodes.
func (c *testLab) mustSettle(nodes int) {
	c.t.Helper()
	for _, node := range c.open().Topology.Nodes {
		eventually(c.t, time.Minute, node.Name+" encrypts to all others", func() bool { return len(c.peers(node.Name)) == nodes-1 })
	}
}

// away is how long the API server is away.
const away = 20 * time.Second

// TestKubeOutage: the API server is killed and comes back, in strict mode: no packet is lost, nothing is in clear, no
// node forgets anything. So it is when etcd goes with it.
func TestKubeOutage(t *testing.T) {
	t.Parallel()
	c := upKube(t, "kaway", "--pods", "1", "--mode", "strict")
	plane := c.control()
	for _, gone := range [][]control.Component{{control.APIServer}, {control.APIServer, control.Etcd}} {
		w := watch(t, c)
		for _, component := range gone {
			if err := plane.KillComponent(t.Context(), component); err != nil {
				t.Fatal(err)
			}
		}
		for end := time.Now().Add(away); time.Now().Before(end); time.Sleep(time.Second) {
			for _, node := range c.open().Topology.Nodes {
				if got := c.peers(node.Name); len(got) != 2 {
					t.Errorf("without %v, %s has the peers %v", gone, node.Name, got)
				}
			}
		}
		for _, component := range slices.Backward(gone) {
			if err := plane.StartComponent(t.Context(), component); err != nil {
				t.Fatal(err)
			}
		}
		took := eventually(t, time.Minute, "every agent has found the API server again", func() bool {
			return !slices.ContainsFunc(c.open().Topology.Nodes, func(n lab.Node) bool { return len(c.status(n.Name).Problems) > 0 })
		})
		t.Logf("every agent had found it again %v after it was there", took)
		w.finish(t)
	}
	// What the API server says counts again: a new node gets through to all.
	c.must("join")
	c.mustVerify(12 * 4 * 2 * 3)
}

// TestKubeInterrupted: a lab whose making was killed while the control plane started goes without a trace.
func TestKubeInterrupted(t *testing.T) {
	t.Parallel()
	controltest.Need(t)
	c := newTestLab(t, "kcut")
	process := exec.Command(warren, "lab", "up", "--kube", "--name", c.name)
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = process.Process.Kill(), process.Wait() })
	eventually(t, time.Minute, "the API server starts", func() bool {
		l, err := lab.Open(c.name, lab.Options{})
		if err != nil {
			return false
		}
		plane, err := l.Control()
		return err == nil && plane.PID(control.APIServer) != 0
	})
}
