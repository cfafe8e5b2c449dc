package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"warren/internal/lab/proof"
	"warren/internal/lab/wire"
)

// Ports of Kubernetes whose traffic crosses the wire: the API server's, which kubelets and agents talk to, and the
// kubelets', which the API server talks to.
const (
	apiPort     = 6443
	kubeletPort = 10250
)

// measure sends traffic of every class between all nodes, and lets Kubernetes talk to itself, and returns the one as it
// was measured and all frames that crossed the wire.
func (c *cluster) measure(t testing.TB) (proof.Measurement, []wire.Frame) {
	t.Helper()
	var measured proof.Measurement
	frames, err := proof.Watch(c.topology, func() (err error) {
		c.administer(t)
		measured, err = proof.Measure(context.Background(), c.topology, proof.Options{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return measured, frames
}

// administer makes the API server talk to every kubelet, and every pod, of the nodes' own network or not, to
// every other.
func (c *cluster) administer(t testing.TB) {
	t.Helper()
	command := []string{"/guest", "ask"}
	for _, n := range c.topology.Nodes {
		command = append(command, fmt.Sprintf("http://%s:8081/", n.Addresses[0]), fmt.Sprintf("http://%s:8080/", n.Pods[0].Addresses[0]))
	}
	for _, label := range []string{"app=pod", "app=host"} {
		for _, from := range c.pods(t, testNamespace, label) {
			c.kubectl(t, "logs", "--namespace", testNamespace, from.Metadata.Name)
			c.kubectl(t, append([]string{"exec", "--namespace", testNamespace, from.Metadata.Name, "--"}, command...)...)
		}
	}
}

// seeClear measures without Warren and shows that what has to disappear is there.
func (c *cluster) seeClear(t testing.TB) proof.Measurement {
	t.Helper()
	measured, frames := c.measure(t)
	for _, port := range []uint16{apiPort, kubeletPort} {
		if !slices.ContainsFunc(frames, func(f wire.Frame) bool { return f.Kind == wire.Clear && f.Flow.Destination.Port() == port }) {
			t.Errorf("without Warren, nothing in clear was seen for port %d", port)
		}
	}
	return measured
}

// prove measures with Warren and expects everything delivered and nothing in clear.
func (c *cluster) prove(t testing.TB, control proof.Measurement) {
	t.Helper()
	measured, frames := c.measure(t)
	report := proof.Compare(c.run.name, control, measured)
	if report.Void != "" {
		t.Fatalf("void: %s", report.Void)
	}
	if rows := nodes * (nodes - 1) * len(proof.Classes) * len(proof.Families) * len(proof.Protocols); len(report.Rows) != rows {
		t.Errorf("%d rows, want %d", len(report.Rows), rows)
	}
	for _, row := range report.Rows {
		if !row.OK {
			t.Errorf("%s: %s", row.Row, row.Problem)
		}
	}
	mustBeEncrypted(t, frames)
}

// encrypted watches the wire while f runs, and expects that nothing crosses it in clear.
func (c *cluster) encrypted(t testing.TB, f func()) {
	t.Helper()
	frames, err := proof.Watch(c.topology, func() error { f(); return nil })
	if err != nil {
		t.Fatal(err)
	}
	mustBeEncrypted(t, frames)
}

func mustBeEncrypted(t testing.TB, frames []wire.Frame) {
	t.Helper()
	kinds := map[wire.Kind]int{}
	var examples []string
	for _, frame := range frames {
		kinds[frame.Kind]++
		if frame.Kind == wire.Clear && len(examples) < 5 {
			examples = append(examples, fmt.Sprintf("%s, sent by %s, %d bytes", frame.Flow, frame.Port, frame.Length))
		}
	}
	if kinds[wire.Clear] > 0 || kinds[wire.WireGuard] == 0 {
		t.Errorf("%d frames in clear, %d of WireGuard\n%s", kinds[wire.Clear], kinds[wire.WireGuard], strings.Join(examples, "\n"))
	}
}
