package lab

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warren/internal/config"
	"warren/internal/lab/netns"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestRecipe shows every command that builds a lab of two nodes, and those with which one leaves.
func TestRecipe(t *testing.T) {
	for _, test := range []struct {
		name string
		cni  CNI
		path *Path
	}{
		{name: "routes", cni: CNIRoutes},
		{name: "vxlan", cni: CNIVXLAN},
		{name: "routes-path", cni: CNIRoutes, path: &Path{Node: 2, MTU: 1400}},
		{name: "vxlan-path-silent", cni: CNIVXLAN, path: &Path{Node: 2, MTU: 1400, Silent: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			recipe := newRecipe(valid(func(s *Spec) { s.Nodes, s.Pods, s.CNI, s.Path = []int{1, 2}, 1, test.cni, test.path }))
			n1, n2 := recipe.topo.Nodes[0], recipe.topo.Nodes[1]
			scripts := slices.Concat(recipe.wire(), recipe.router(), recipe.node(n1), recipe.node(n2), recipe.join(n1, n2), recipe.join(n2, n1))
			golden(t, "recipe-"+test.name+".txt", printScripts(scripts)+"\n# n2 leaves\n"+printScripts(recipe.part(n1, n2)))
		})
	}
}

func TestAgentConfig(t *testing.T) {
	node := valid(nil).Topology().Nodes[0]
	dirs := nodeDirs{root: "/run/warren-lab/x/n1"}
	tests := []struct {
		name    string
		options AgentOptions
	}{
		{name: "defaults"},
		{name: "everything", options: AgentOptions{Attach: "clsact", Ingress: "device", Mode: "strict", LogLevel: "debug"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			text := agentConfig(node, dirs, "/run/warren-lab/x/nodes", test.options)
			golden(t, "config-"+test.name+".yaml", text)
			if _, err := config.Parse("config.yaml", []byte(text)); err != nil {
				t.Errorf("the agent refuses it: %v", err)
			}
		})
	}
}

func printScripts(scripts []netns.Script) string {
	var text strings.Builder
	for _, script := range scripts {
		for _, line := range script.Lines {
			fmt.Fprintln(&text, strings.Join(slices.Concat([]string{script.Tool}, script.Options, []string{"-n", script.Namespace, line}), " "))
		}
	}
	return text.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), -update rewrites it:\n%s", path, diff)
	}
}
