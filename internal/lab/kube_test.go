package lab

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warren/deploy"
	"warren/internal/config"
)

// withKube is a spec of two nodes with one pod each and Kubernetes.
func withKube(s *Spec) {
	s.Nodes, s.Pods, s.Kube = []int{1, 2}, 1, &KubeOptions{Binaries: "/opt/kube", Forwarder: "/bin/warren"}
}

// TestAttachments shows what the CNI plugins are told of a pod, and what is left to make by hand.
func TestAttachments(t *testing.T) {
	recipe := newRecipe(valid(withKube))
	n2 := recipe.topo.Nodes[1]
	text := printScripts(recipe.node(n2))
	for _, a := range recipe.attachments(n2, n2.Pods[0], "/run/warren-lab/x/n2/cni") {
		text += "\n" + a.plugin + " makes " + a.device + ": " + string(a.config) + "\n"
	}
	golden(t, "recipe-kube.txt", text)
}

func TestNodeObjects(t *testing.T) {
	golden(t, "nodes.json", string(nodeObjects(valid(withKube).Topology().Nodes))+"\n")
}

func TestAgentConfigWithKube(t *testing.T) {
	text := agentConfig(valid(withKube).Topology().Nodes[0], nodeDirs{root: "/run/warren-lab/x/n1"}, "", AgentOptions{Mode: "strict"})
	golden(t, "config-kube.yaml", text)
	if _, err := config.Parse("config.yaml", []byte(text)); err != nil {
		t.Errorf("the agent refuses it: %v", err)
	}
}

// TestWithoutPods: of what Kubernetes needs to run Warren, a lab leaves out what runs it, and no more.
func TestWithoutPods(t *testing.T) {
	kinds := func(manifest string) []string {
		var kinds []string
		for line := range strings.Lines(manifest) {
			if kind, ok := strings.CutPrefix(line, "kind: "); ok {
				kinds = append(kinds, strings.TrimSpace(kind))
			}
		}
		return kinds
	}
	want := slices.DeleteFunc(kinds(deploy.Manifest), func(kind string) bool { return kind == "DaemonSet" })
	if len(want) == len(kinds(deploy.Manifest)) || len(want) == 0 {
		t.Fatalf("the manifest has only %v", kinds(deploy.Manifest))
	}
	if diff := cmp.Diff(want, kinds(withoutPods(deploy.Manifest))); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
}

func TestGave(t *testing.T) {
	want := []netip.Addr{netip.MustParseAddr("10.42.1.11"), netip.MustParseAddr("fd00:42:1::11")}
	tests := []struct {
		name, result string
		good         bool
	}{
		{name: "both", result: `{"ips": [{"address": "10.42.1.11/24"}, {"address": "fd00:42:1::11/64"}]}`, good: true},
		{name: "one", result: `{"ips": [{"address": "10.42.1.11/24"}]}`},
		{name: "another", result: `{"ips": [{"address": "10.42.1.2/24"}, {"address": "fd00:42:1::11/64"}]}`},
		{name: "none", result: `{}`},
		{name: "no result", result: `bridge: permission denied`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if err := gave([]byte(test.result), want); (err == nil) != test.good {
				t.Errorf("gave: %v", err)
			}
		})
	}
}
