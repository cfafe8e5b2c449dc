package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"warren/internal/lab"
	"warren/internal/lab/netns"
)

// testNamespace is where the tests' own pods live.
const testNamespace = "test"

// populate runs a pod on every node and gives its network namespace a name, by which it becomes part of the topology:
// the tests send and receive inside it.
func (c *cluster) populate(t testing.TB) {
	t.Helper()
	c.apply(t, "testdata/pods.yaml")
	for _, set := range []string{"daemonset/pod", "daemonset/host"} {
		c.rollout(t, testNamespace, set)
	}
	for i := range c.topology.Nodes {
		if err := c.adopt(t, &c.topology.Nodes[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// adopt makes the pod of a node part of the topology.
func (c *cluster) adopt(t testing.TB, n *lab.Node) error {
	t.Helper()
	p, ok := c.pods(t, testNamespace, "app=pod")[n.Name]
	if !ok {
		return fmt.Errorf("no pod on %s", n.Name)
	}
	own := lab.Pod{Number: 1, Name: "pod", Namespace: n.Namespace + "-pod"}
	for _, ip := range p.Status.PodIPs {
		own.Addresses = append(own.Addresses, ip.IP)
	}
	if len(own.Addresses) != len(n.Addresses) {
		return fmt.Errorf("pod %s has the addresses %v, want one of each family", p.Metadata.Name, own.Addresses)
	}
	if err := name(own.Namespace, p.Metadata.UID); err != nil {
		return err
	}
	n.Pods = []lab.Pod{own}
	return hasAddresses(own)
}

// hasAddresses says which of its addresses a pod does not have: after a reboot it gets others, which Kubernetes learns
// of later.
func hasAddresses(p lab.Pod) error {
	return netns.Do(p.Namespace, func() error {
		have, err := net.InterfaceAddrs()
		for _, address := range p.Addresses {
			if !slices.ContainsFunc(have, func(a net.Addr) bool { return strings.HasPrefix(a.String(), address.String()+"/") }) {
				err = errors.Join(err, fmt.Errorf("the pod does not have the address %s: %v", address, have))
			}
		}
		return err
	})
}

// name gives the network namespace of a pod a name, instead of what had it before.
func name(namespace, uid string) error {
	process, err := processOf(uid)
	if err != nil {
		return err
	}
	if err := netns.Delete(namespace); err != nil {
		return err
	}
	return netns.Batch(context.Background(), ip("", fmt.Sprintf("netns attach %s %s", namespace, process)))
}

// processOf returns the id of a process of a pod, by its control group.
func processOf(uid string) (string, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return "", err
	}
	for _, path := range files {
		if groups, err := os.ReadFile(path); err == nil && bytes.Contains(groups, []byte("/pod"+uid)) {
			return strings.Split(path, "/")[2], nil
		}
	}
	return "", fmt.Errorf("no process is in the control group of the pod %s", uid)
}
