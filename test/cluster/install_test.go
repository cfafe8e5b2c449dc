package cluster

import (
	"testing"

	"warren/internal/lab/proof"
)

// Where the manifests put Warren.
const (
	warrenNamespace = "warren-system"
	agentLabel      = "app.kubernetes.io/name=warren"
)

// page is the documentation that the tests obey.
const page = "docs/kubernetes.md"

// installation is one way to install Warren, in blocks of commands of the page. The machine that the tests run on may
// have no WireGuard in its kernel, which is the harder case, so that is the one that is tested.
type installation struct {
	name      string
	proxy     string // the mode of kube-proxy meanwhile
	install   []block
	uninstall []block
	// changes is whether nodes and agents come and go meanwhile. How Warren was installed makes no difference to that.
	changes bool
}

var installations = []installation{
	{name: "kubectl", proxy: iptables, changes: true,
		install:   []block{{"## Install", 0}, {"### Kernels without WireGuard", 0}, {"## Install", 2}},
		uninstall: []block{{"## Uninstall", 0}, {"## Uninstall", 1}}},
	{name: "helm", proxy: nftables,
		install:   []block{{"## Install", 1}, {"## Install", 2}},
		uninstall: []block{{"## Uninstall", 0}, {"## Uninstall", 2}}},
}

// TestInstall is the life of an installation, in each of the ways.
func TestInstall(t *testing.T) {
	c := up(t)
	c.populate(t)
	control := c.seeClear(t)
	for _, way := range installations {
		t.Run(way.name, func(t *testing.T) { c.live(t, way, control) })
	}
}

// live is the life of one installation.
func (c *cluster) live(t *testing.T, way installation, control proof.Measurement) {
	if err := c.proxy(t.Context(), way.proxy); err != nil {
		t.Fatal(err)
	}
	before := c.lookAll(t)
	c.install(t, way)
	mustDiffer(t, before, c.lookAll(t))
	t.Run("every class of traffic", func(t *testing.T) { c.prove(t, control) })
	t.Run("services", c.serve)
	if way.changes {
		t.Run("rolling update", c.update)
		t.Run("agent deleted", c.lose)
		t.Run("node rebooted", func(t *testing.T) {
			c.reboot(t)
			c.prove(t, control)
		})
	}
	t.Run("uninstall", func(t *testing.T) {
		for _, step := range way.uninstall {
			c.keepsTraffic(t, func() { c.follow(t, step) })
		}
		c.traceless(t, before)
	})
}

// install installs Warren and, when all nodes have confirmed each other, goes on to strict mode, while traffic goes on, of
// which nothing is lost.
func (c *cluster) install(t *testing.T, way installation) {
	c.keepsTraffic(t, func() {
		c.follow(t, way.install...)
		c.follow(t, block{"## Verify", 1})
		c.feed(t, strictConfig, "apply", "-f", "-")
		c.follow(t, block{"## Configuration", 1})
		c.settle(t)
	})
	t.Log(c.kubectl(t, "get", "warrennodes"))
}

// strictConfig forbids clear text.
const strictConfig = `apiVersion: warren.network/v1alpha1
kind: WarrenConfig
metadata: {name: default}
spec: {mode: strict}
`
