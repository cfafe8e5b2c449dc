package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/lab/proof"
	"warren/test/flow"
)

// nodePort is the port of the Service on every node.
const nodePort = 30080

// serve reaches a Deployment by the Service's own addresses and by every node's, from every node and every pod, in both
// families: wherever kube-proxy sends it, nothing crosses the wire in clear.
func (c *cluster) serve(t *testing.T) {
	c.apply(t, "testdata/web.yaml")
	c.rollout(t, testNamespace, "deployment/web")
	var replicas []string
	for _, p := range c.pods(t, testNamespace, "app=web") {
		replicas = append(replicas, p.Metadata.Name)
	}
	if len(replicas) != nodes {
		t.Fatalf("the pods %v are not one on every node", replicas)
	}
	urls := c.serviceURLs(t)
	c.encrypted(t, func() {
		for _, n := range c.topology.Nodes {
			for _, from := range []proof.End{flow.Host(n, 0), flow.Pod(n, 0)} {
				for _, url := range urls {
					if err := reach(from, url, replicas); err != nil {
						t.Error(err)
					}
				}
			}
		}
	})
}

// serviceURLs are all by which the Service is reached.
func (c *cluster) serviceURLs(t *testing.T) []string {
	var urls []string
	own := strings.Fields(c.kubectl(t, "get", "service", "--namespace", testNamespace, "web", "--output", "jsonpath={.spec.clusterIPs[*]}"))
	for _, ip := range own {
		urls = append(urls, fmt.Sprintf("http://%s/", netip.AddrPortFrom(netip.MustParseAddr(ip), 80)))
	}
	for _, n := range c.topology.Nodes {
		for _, ip := range n.Addresses {
			urls = append(urls, fmt.Sprintf("http://%s/", netip.AddrPortFrom(ip, nodePort)))
		}
	}
	return urls
}

// proxyTime is how long it may take until each of three pods, chosen at random, has answered: kube-proxy learns of those that
// are ready a moment after the Deployment is complete.
const proxyTime = 20 * time.Second

// reach asks until every replica has answered.
func reach(from proof.End, url string, replicas []string) error {
	missing := slices.Clone(replicas)
	for end := time.Now().Add(proxyTime); time.Now().Before(end); {
		answer, err := get(from.Namespace, url)
		if errors.Is(err, unix.ECONNREFUSED) {
			continue // it knows of none yet
		}
		if err != nil {
			return fmt.Errorf("from %s: %w", from.Place, err)
		}
		if !slices.Contains(replicas, answer) {
			return fmt.Errorf("from %s: %s answers %q, which is none of %v", from.Place, url, answer, replicas)
		}
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == answer })
		if len(missing) == 0 {
			return nil
		}
	}
	return fmt.Errorf("from %s: %s never led to %v", from.Place, url, missing)
}
