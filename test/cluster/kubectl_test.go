package cluster

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"testing"
	"time"
)

// patience is how long Kubernetes may take for anything, on a busy machine.
const patience = 90 * time.Second

// kubectl runs a command that has to succeed, as the administrator, and returns what it prints.
func (c *cluster) kubectl(t testing.TB, args ...string) string {
	t.Helper()
	return c.feed(t, "", args...)
}

// feed runs kubectl with an input.
func (c *cluster) feed(t testing.TB, input string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	output, err := c.plane.Kubectl(ctx, input, args...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// apply makes the objects of a file.
func (c *cluster) apply(t testing.TB, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c.feed(t, string(text), "apply", "-f", "-")
}

// rollout waits until every pod of a DaemonSet or Deployment is ready and of the latest kind.
func (c *cluster) rollout(t testing.TB, namespace, what string) {
	t.Helper()
	c.kubectl(t, "rollout", "status", "--namespace", namespace, what, "--timeout", patience.String())
}

// pod is what the tests want to know of one.
type pod struct {
	Metadata struct {
		Name, UID string
		Deletion  *time.Time `json:"deletionTimestamp"`
	}
	Spec   struct{ NodeName string }
	Status struct {
		Phase  string
		PodIPs []struct{ IP netip.Addr }
	}
}

// pods returns the pods of a namespace with a label that are not about to end, by node.
func (c *cluster) pods(t testing.TB, namespace, label string) map[string]pod {
	t.Helper()
	var list struct{ Items []pod }
	text := c.kubectl(t, "get", "pod", "--namespace", namespace, "--selector", label, "--output", "json")
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	byNode := map[string]pod{}
	for _, p := range list.Items {
		if p.Metadata.Deletion == nil {
			byNode[p.Spec.NodeName] = p
		}
	}
	return byNode
}
