package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warren/internal/api"
	"warren/internal/lab"
	"warren/internal/lab/proof"
	"warren/internal/lab/wire"
	"warren/test/flow"
)

// rotationTime is how long the replacement of a key may take where every peer comes along.
const rotationTime = time.Minute

// watched is a lab with traffic between all nodes in both directions, and somebody who reads along on the wire.
type watched struct {
	*testLab
	flows   []flow.Flow
	capture *wire.Capture
	// mayBeClear tells which frames may be read; nil: none.
	mayBeClear func(wire.Frame) bool
}

// watch starts the traffic, of hosts and of pods, and the capture.
func watch(t *testing.T, c *testLab) *watched {
	t.Helper()
	topology := c.open().Topology
	return &watched{testLab: c, flows: crossing(t, topology.Nodes), capture: listen(t, topology)}
}

// crossing starts traffic of hosts and of pods between all nodes in both directions, in one family each.
func crossing(t *testing.T, nodes []lab.Node) (flows []flow.Flow) {
	t.Helper()
	for i, a := range nodes {
		for j, b := range nodes {
			if a.Name != b.Name {
				family := (i + j) % 2
				flows = append(flows, flow.StartStream(t, flow.Host(a, family), flow.Host(b, family)), flow.StartStream(t, flow.Pod(a, 1-family), flow.Pod(b, 1-family)))
			}
		}
	}
	return flows
}

// listen starts the capture.
func listen(t *testing.T, topology lab.Topology) *wire.Capture {
	t.Helper()
	capture, err := wire.Listen(topology.Wire, topology.Bridges(), wire.Options{Cluster: proof.ClusterOf(topology)})
	if err != nil {
		t.Fatal(err)
	}
	return capture
}

// finish expects that nothing was lost and nothing could be read.
func (w *watched) finish(t *testing.T) {
	t.Helper()
	for _, f := range w.flows {
		f.Finish(t)
	}
	if t.Failed() {
		w.showReasons()
	}
	frames, err := w.capture.Close()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[wire.Kind]int{}
	for _, frame := range frames {
		if frame.Kind == wire.Clear && w.mayBeClear != nil && w.mayBeClear(frame) {
			continue
		}
		kinds[frame.Kind]++
		if frame.Kind == wire.Clear && kinds[wire.Clear] <= 5 {
			t.Errorf("in clear on the wire: %+v", frame)
		}
	}
	if kinds[wire.Clear] > 0 || kinds[wire.WireGuard] < 1000 {
		t.Errorf("%d frames in clear, %d of WireGuard", kinds[wire.Clear], kinds[wire.WireGuard])
	}
}

// showReasons prints what the programs did, to tell a packet that was dropped from one that got lost.
func (w *watched) showReasons() {
	for _, node := range w.open().Topology.Nodes {
		for _, r := range w.status(node.Name).Reasons {
			if r.Packets > 0 {
				w.t.Logf("%s: %s %s %d", node.Name, r.Program, r.Reason, r.Packets)
			}
		}
	}
}

// rotation returns how far a node is; the epoch is 0 when its agent does not answer.
func (c *testLab) rotation(node string) api.Rotation { return c.status(node).Rotation }

// rotated waits until a node has nothing but its key of that epoch, and all of the others use it.
func (c *testLab) rotated(node string, epoch uint32) {
	c.t.Helper()
	eventually(c.t, rotationTime, fmt.Sprintf("%s has its key of epoch %d alone", node, epoch), func() bool {
		r := c.rotation(node)
		return r.Epoch == epoch && r.Stage == "" && len(r.Keys) == 1
	})
	name := "private.key"
	if epoch != 1 {
		name = fmt.Sprintf("private.%d.key", epoch)
	}
	files, err := filepath.Glob(filepath.Join(lab.BaseDir, c.name, node, "state", "private*"))
	if err != nil || len(files) != 1 || filepath.Base(files[0]) != name {
		c.t.Errorf("the private keys of %s are in %v, %v", node, files, err)
	}
	for _, other := range c.open().Topology.Others(node) {
		eventually(c.t, rotationTime, other.Name+" uses the new key of "+node, func() bool {
			return slices.ContainsFunc(c.status(other.Name).Peers, func(p api.Peer) bool {
				return p.Node == node && p.Epoch == epoch && p.Encrypting && p.State == "confirmed"
			})
		})
	}
}

// devices returns the names of a node's WireGuard devices, by what the kernel says.
func (c *testLab) devices(node string) []string {
	var names []string
	for _, line := range strings.Split(c.mustExec(node, "ip", "-o", "link"), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], "warren") {
			names = append(names, strings.TrimSuffix(fields[1], ":"))
		}
	}
	slices.Sort(names)
	return names
}

// expectDevices waits until each node has these devices and no others.
func (c *testLab) expectDevices(want map[string][]string) {
	c.t.Helper()
	got := map[string][]string{}
	deadline := time.Now().Add(rotationTime)
	for !cmp.Equal(want, got) {
		if time.Now().After(deadline) {
			c.t.Errorf("devices (-want +got):\n%s", cmp.Diff(want, got))
			return
		}
		for node := range want {
			got[node] = c.devices(node)
		}
	}
}

// TestRotation replaces the key of one node, and then those of all nodes at the same time.
func TestRotation(t *testing.T) {
	c := up(t, "rotate", "--nodes", "3", "--pods", "1", "--mode", "strict")
	w := watch(t, c)
	if out := c.mustExec("n1", warren, "keys", "rotate", "--wait"); out != "epoch 2\n" {
		t.Errorf("warren keys rotate printed %q", out)
	}
	c.rotated("n1", 2)
	c.expectDevices(map[string][]string{"n1": {"warren0b"}, "n2": {"warren0", "warren0c"}, "n3": {"warren0", "warren0c"}})

	var all sync.WaitGroup
	for _, node := range []string{"n1", "n2", "n3"} {
		all.Go(func() { c.exec(node, warren, "keys", "rotate", "--wait") })
	}
	all.Wait()
	c.rotated("n1", 3)
	c.rotated("n2", 2)
	c.rotated("n3", 2)
	c.expectDevices(map[string][]string{"n1": {"warren0c"}, "n2": {"warren0b", "warren0d"}, "n3": {"warren0b", "warren0d"}})
	time.Sleep(time.Second)
	w.finish(t)
	c.mustVerify(6 * 4 * 2 * 3)
	c.must("agent", "kill", "n2")
	c.mustExec("n2", warren, "cleanup")
	if left := warrenOn(c, "n2"); len(left) > 0 {
		t.Errorf("left on n2 after cleanup: %v", left)
	}
}

// TestRotationSurvivesCrashes kills the agent whose key is replaced at every stage, and that of a peer.
func TestRotationSurvivesCrashes(t *testing.T) {
	c := up(t, "rotatecrash", "--nodes", "3", "--pods", "1", "--mode", "strict")
	w := watch(t, c)
	epoch := uint32(1)
	for _, crash := range []struct {
		name, victim string
		now          func(api.Rotation) bool
	}{
		{"the key was made, perhaps not published", "n1", func(api.Rotation) bool {
			_, err := os.Stat(filepath.Join(lab.BaseDir, c.name, "n1", "state", fmt.Sprintf("private.%d.key", epoch+1)))
			return err == nil
		}},
		{"both keys are published", "n1", func(r api.Rotation) bool { return r.Stage == api.RotationMoving && len(r.Keys) == 2 }},
		{"a peer has moved", "n1", func(r api.Rotation) bool { return len(r.Moved) > 0 }},
		{"a peer dies while others move", "n2", func(r api.Rotation) bool { return r.Stage == api.RotationMoving && len(r.Keys) == 2 }},
		{"a peer dies after it has moved", "n2", func(r api.Rotation) bool { return len(r.Moved) == 2 }},
		{"the old key is withdrawn", "n1", func(r api.Rotation) bool { return r.Stage == api.RotationWithdrawn }},
		{"the old key is deleted", "n1", func(r api.Rotation) bool { return r.Epoch == epoch+1 && r.Stage == "" }},
	} {
		pid, started := c.pid(crash.victim), make(chan struct{})
		go func() {
			defer close(started)
			c.exec("n1", warren, "keys", "rotate")
		}()
		eventually(t, rotationTime, crash.name, func() bool { return crash.now(c.rotation("n1")) })
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-started
		time.Sleep(500 * time.Millisecond) // without an agent
		c.must("agent", "start", crash.victim)
		epoch++
		c.rotated("n1", epoch)
		if t.Failed() {
			t.Fatalf("after: %s", crash.name)
		}
	}
	c.expectDevices(map[string][]string{"n1": {"warren0b"}, "n2": {"warren0", "warren0c"}, "n3": {"warren0", "warren0c"}})
	time.Sleep(time.Second)
	w.finish(t)
}

// TestRotationInterval: an agent that finds its key too old replaces it by itself, and the new one stays.
func TestRotationInterval(t *testing.T) {
	t.Parallel()
	c := up(t, "rotateinterval", "--nodes", "2", "--pods", "1", "--mode", "strict")
	w := watch(t, c)
	c.must("agent", "stop", "n1")
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(filepath.Join(lab.BaseDir, c.name, "n1", "state", "private.key"), old, old); err != nil {
		t.Fatal(err)
	}
	startAgent(t, c, "n1", "--rotation-interval", "1h")
	c.rotated("n1", 2)
	c.must("agent", "stop", "n1")
	startAgent(t, c, "n1", "--rotation-interval", "1h")
	time.Sleep(3 * time.Second)
	if r := c.rotation("n1"); r.Epoch != 2 || r.Stage != "" {
		t.Errorf("the new key is replaced at once: %+v", r)
	}
	w.finish(t)
}

// TestRotationWaitsForAPeer: a peer whose agent is dead keeps the old key, which keeps working with it, while
// the others have the new one; when it comes back the rotation ends.
func TestRotationWaitsForAPeer(t *testing.T) {
	c := up(t, "rotatewait", "--nodes", "3", "--pods", "1", "--mode", "strict")
	w := watch(t, c)
	c.must("agent", "kill", "n3")
	c.mustExec("n1", warren, "keys", "rotate")
	waits := func() bool {
		r := c.rotation("n1")
		return r.Stage == api.RotationMoving && slices.Equal(r.Moved, []string{"n2"}) && slices.Equal(r.Waiting, []string{"n3"}) && len(r.Keys) == 2
	}
	eventually(t, rotationTime, "n1 waits for n3 alone", waits)
	time.Sleep(8 * time.Second) // longer than an old key that nobody uses stays
	if !waits() {
		t.Errorf("after some time: %+v", c.rotation("n1"))
	}
	c.must("agent", "start", "n3")
	c.rotated("n1", 2)
	w.finish(t)
}
