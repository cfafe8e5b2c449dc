package cluster

import (
	"testing"
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
}

var installations = []installation{
	{name: "kubectl", proxy: iptables,
		install:   []block{{"## Install", 0}, {"### Kernels without WireGuard", 0}},
		uninstall: []block{{"## Uninstall", 0}, {"## Uninstall", 1}}},
}

// TestInstall is the life of an installation, in each of the ways.
func TestInstall(t *testing.T) {
	c := up(t)
	c.populate(t)
	control := c.seeClear(t)
	for _, way := range installations {
		t.Run(way.name, func(t *testing.T) {
			if err := c.proxy(t.Context(), way.proxy); err != nil {
				t.Fatal(err)
			}
			before := c.lookAll(t)
			c.follow(t, way.install...)
			c.feed(t, strictConfig, "apply", "-f", "-")
			c.settle(t)
			t.Log(c.kubectl(t, "get", "warrennodes"))
			t.Run("every class of traffic", func(t *testing.T) { c.prove(t, control) })
			t.Run("services", c.serve)
			t.Run("rolling update", c.update)
			t.Run("agent deleted", c.lose)
			t.Run("node rebooted", func(t *testing.T) {
				c.reboot(t)
				c.prove(t, control)
			})
			t.Run("uninstall", func(t *testing.T) {
				c.follow(t, way.uninstall...)
				c.traceless(t, before)
			})
		})
	}
}

// strictConfig forbids clear text.
const strictConfig = `apiVersion: warren.network/v1alpha1
kind: WarrenConfig
metadata: {name: default}
spec: {mode: strict}
`
