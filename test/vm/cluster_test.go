package vm

import (
	"os"
	"strings"
	"testing"

	"warren/internal/lab"
)

// allRows are those of three nodes: 6 ordered pairs × 4 classes × 2 families × 3 protocols.
const allRows = 6 * 4 * 2 * 3

// TestCluster goes through the life of a cluster whose nodes encrypt with the kernel's WireGuard: real
// agents, which choose by themselves how to attach and what encrypts, and the wire as the witness.
func TestCluster(t *testing.T) {
	needGuest(t)
	l := up(t, "--nodes", "3", "--pods", "1")
	t.Run("the kernel encrypts", func(t *testing.T) { kernelEncrypts(t, l) })
	t.Run("nothing is in clear", func(t *testing.T) { verify(t, allRows) })
	t.Run("nor what is larger than any packet", func(t *testing.T) { verify(t, allRows, "--size", "60000") })
	t.Run("agents restart under traffic", func(t *testing.T) { restarts(t, l) })
	t.Run("a record goes and comes back", func(t *testing.T) { recordGoes(t, l) })
	t.Run("addresses move to another node", func(t *testing.T) { addressesMove(t, l) })
}

// TestOverlay: the same for pods that reach each other over VXLAN, whose packets are the node's own.
func TestOverlay(t *testing.T) {
	needGuest(t)
	up(t, "--nodes", "2", "--pods", "1", "--cni", "vxlan")
	verify(t, 2*4*2*3)
	verify(t, 2*4*2*3, "--size", "60000")
}

func kernelEncrypts(t *testing.T, l *lab.Lab) {
	want := wantAttach(t)
	for _, node := range l.Topology.Nodes {
		s := status(l, node.Name)
		if s.Device.Engine != "kernel" {
			t.Errorf("%s encrypts with engine %q", node.Name, s.Device.Engine)
		}
		if len(s.Underlay) != 1 || s.Underlay[0].Attach != want {
			t.Errorf("underlay of %s: %+v, want one device, attached by %s", node.Name, s.Underlay, want)
		}
	}
	// The agent's word is one thing, the device another.
	if device := onLab(t, "exec", "n1", "--", "ip", "-details", "link", "show", "warren0"); !strings.Contains(device, "wireguard") {
		t.Errorf("warren0 is not the kernel's:\n%s", device)
	}
}

// restarts kills and starts agents while hosts and pods ping each other in both families. While no
// agent runs at all, everything is still encrypted.
func restarts(t *testing.T, l *lab.Lab) {
	n1, n2 := l.Topology.Nodes[0], l.Topology.Nodes[1]
	pings := []*ping{
		startPing(t, "n1", n2.Addresses[0]), startPing(t, "n2", n1.Addresses[1]),
		startPing(t, "n1/p1", n2.Pods[0].Addresses[0]), startPing(t, "n2/p1", n1.Pods[0].Addresses[1]),
	}
	onLab(t, "agent", "kill", "n1")
	onLab(t, "agent", "start", "--wait", patience.String(), "n1")
	onLab(t, "agent", "kill", "n1", "n2", "n3")
	verify(t, 6*2*2, "--class", "host-host,pod-pod", "--protocol", "udp")
	onLab(t, "agent", "start", "--wait", patience.String(), "n1", "n2", "n3")
	for _, p := range pings {
		p.finish(t)
	}
}

// recordGoes takes a node's record away while its agent does not run, which would write it again.
func recordGoes(t *testing.T, l *lab.Lab) {
	onLab(t, "agent", "kill", "n3")
	if err := os.Remove(l.RecordPath("n3")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "n1 and n2 have dropped the peer", func() bool { return peer(l, "n1", "n3") == "" && peer(l, "n2", "n3") == "" })
	onLab(t, "agent", "start", "--wait", patience.String(), "n3")
	eventually(t, "n1 and n2 have the peer", func() bool { return peer(l, "n1", "n3") != "" && peer(l, "n2", "n3") != "" })
	verify(t, 2*2*2, "--from", "n3", "--class", "host-host,pod-pod", "--protocol", "udp")
}

// addressesMove: a node leaves, and a new machine takes its name, its addresses and its pods' with
// another key.
func addressesMove(t *testing.T, l *lab.Lab) {
	old := peer(l, "n1", "n3")
	onLab(t, "leave", "n3")
	eventually(t, "n1 and n2 have dropped the peer", func() bool { return peer(l, "n1", "n3") == "" && peer(l, "n2", "n3") == "" })
	if name := strings.TrimSpace(onLab(t, "join", "--wait", patience.String())); name != "n3" {
		t.Fatalf("%q joined, want n3 again", name)
	}
	if key := peer(l, "n1", "n3"); key == "" || key == old {
		t.Errorf("n1 has n3 with key %q, which was %q", key, old)
	}
	verify(t, 2*2*2, "--to", "n3", "--class", "host-host,pod-pod", "--protocol", "udp")
}
