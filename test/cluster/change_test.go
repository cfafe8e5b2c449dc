package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/api"
	"warren/internal/lab/netns"
	"warren/internal/lab/proof"
	"warren/internal/lab/wire"
	"warren/test/flow"
)

// update replaces every agent while traffic goes on.
func (c *cluster) update(t *testing.T) {
	before := c.pods(t, warrenNamespace, agentLabel)
	c.undisturbed(t, func() {
		c.kubectl(t, "rollout", "restart", "--namespace", warrenNamespace, "daemonset/warren")
		c.rollout(t, warrenNamespace, "daemonset/warren")
		c.settle(t)
	})
	for node, p := range c.pods(t, warrenNamespace, agentLabel) {
		if p.Metadata.UID == before[node].Metadata.UID {
			t.Errorf("the agent of %s was not replaced", node)
		}
	}
}

// lose deletes the pod of an agent while traffic goes on.
func (c *cluster) lose(t *testing.T) {
	victim := c.pods(t, warrenNamespace, agentLabel)[c.nodes[1].Name]
	c.undisturbed(t, func() {
		c.kubectl(t, "delete", "pod", "--namespace", warrenNamespace, victim.Metadata.Name)
		c.rollout(t, warrenNamespace, "daemonset/warren")
		c.settle(t)
	})
	if now := c.pods(t, warrenNamespace, agentLabel)[c.nodes[1].Name]; now.Metadata.UID == victim.Metadata.UID {
		t.Error("the pod is still there")
	}
}

// undisturbed does something while traffic of every class goes on: nothing of it is lost and nothing in clear.
func (c *cluster) undisturbed(t *testing.T, f func()) {
	t.Helper()
	c.encrypted(t, func() { c.keepsTraffic(t, f) })
}

// keepsTraffic does something while traffic of every class goes on: nothing of it is lost. If something is, the agents
// may know why.
func (c *cluster) keepsTraffic(t *testing.T, f func()) {
	t.Helper()
	failed := t.Failed()
	flows := flow.Between(t, c.topology.Nodes)
	f()
	flows.Finish(t)
	if t.Failed() && !failed {
		t.Log(c.kubectl(t, "logs", "--namespace", warrenNamespace, "--selector", agentLabel, "--prefix", "--tail=60"))
	}
}

// reboot ends a node at once and starts it again, with its disk. Until its agent runs again, its kubelet has to reach the
// API server, and its kernel refuses the WireGuard messages of the others, which nobody listens for: that may be seen on
// the wire, and nothing else.
func (c *cluster) reboot(t *testing.T) {
	n := c.nodes[1]
	if err := c.unplug(n); err != nil {
		t.Fatal(err)
	}
	if err := plugInNode(t.Context(), c.topology, n.Node); err != nil {
		t.Fatal(err)
	}
	frames, err := proof.Watch(c.topology, func() error { return c.comeBack(t, n) })
	if err != nil {
		t.Fatal(err)
	}
	server := c.plane.Server()
	seen := map[string]int{}
	for _, f := range frames {
		switch {
		case f.Kind != wire.Clear:
		case f.Flow.Source == server || f.Flow.Destination == server:
			seen["with the API server"]++
		case f.Port == n.Name && f.Flow.Protocol == unix.IPPROTO_ICMP && f.Flow.Source.Port() == 0: // an error, which has no identifier
			seen["refusals"]++
		default:
			t.Errorf("in clear: %s, sent by %s", f.Flow, f.Port)
		}
	}
	t.Logf("frames of the node that had no agent yet: %v", seen)
}

// unplug ends a node, and what it has of the network: its cable first, which would go with it sooner or later.
func (c *cluster) unplug(n *node) error {
	if err := netns.Batch(context.Background(), ip(c.topology.Wire, "link delete "+n.Name)); err != nil {
		return err
	}
	problems := []error{n.kill(), netns.Delete(n.Namespace), removeGroups(n.group())}
	for _, p := range c.topology.Nodes[n.Number-1].Pods {
		problems = append(problems, netns.Delete(p.Namespace))
	}
	return errors.Join(problems...)
}

// comeBack starts a node again and waits until its pods and its agent are back.
func (c *cluster) comeBack(t *testing.T, n *node) error {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	if err := errors.Join(n.boot(), n.startContainerd(ctx), n.startKubelet(), n.startProxy(ctx)); err != nil {
		return err
	}
	eventually(t, 2*patience, "the pod of "+n.Name+" is back", func() error {
		return c.adopt(t, &c.topology.Nodes[n.Number-1])
	})
	c.settle(t)
	return nil
}

// settle waits until every agent encrypts to all others and takes nothing in clear from them.
func (c *cluster) settle(t *testing.T) {
	t.Helper()
	for _, n := range c.nodes {
		eventually(t, patience, "the agent of "+n.Name+" is settled", func() error { return n.settled() })
	}
}

// settled says what the agent still lacks.
func (n *node) settled() error {
	status, err := n.status()
	if err != nil {
		return err
	}
	if !status.Ready {
		return fmt.Errorf("not ready: %v", status.NotReady)
	}
	following := 0
	for _, peer := range status.Peers {
		if peer.Encrypting && peer.Enforcing {
			following++
		}
	}
	if following != nodes-1 {
		return fmt.Errorf("%d of %d peers: %+v", following, nodes-1, status.Peers)
	}
	return nil
}

// status asks the agent of a node, through the node's own file system.
func (n *node) status() (api.Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	socket := fmt.Sprintf("/proc/%d/root/run/warren/%s", n.init.Process.Pid, api.SocketName)
	return api.Dial(socket).Status(ctx)
}

// eventually waits until there is no error any more.
func eventually(t testing.TB, limit time.Duration, what string, f func() error) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(200 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
	}
}
