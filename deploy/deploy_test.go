// Package deploy_test holds what is shipped for machines and clusters against the code, and against itself.
//
//	go test ./deploy -update # writes the manifests and the golden files
package deploy_test

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warren/internal/config"
)

const (
	chart = "helm/warren"
	// helmVariable names the helm that scripts/helm.sh has built.
	helmVariable = "WARREN_HELM"
)

var update = flag.Bool("update", false, "write the manifests and the golden files")

// helm runs helm and returns what it prints.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out, problems strings.Builder
	command := exec.Command(os.Getenv(helmVariable), args...)
	command.Stdout, command.Stderr = &out, &problems
	err := command.Run()
	if err != nil {
		return problems.String() + out.String(), err
	}
	return out.String(), nil
}

// needHelm skips a test that has no helm: `make test-kube`, which accepts no skip, builds it.
func needHelm(t *testing.T) {
	t.Helper()
	if os.Getenv(helmVariable) == "" {
		t.Skipf("runs with helm: `make test-kube`, or %s=$PWD/.cache/helm after scripts/helm.sh version", helmVariable)
	}
}

// TestManifests: the manifests for kubectl are what the chart says.
func TestManifests(t *testing.T) {
	needHelm(t)
	folder := t.TempDir()
	if *update {
		folder = "."
	}
	absolute, err := filepath.Abs(folder)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("../scripts/render.sh", "localhost/warren:dev", absolute).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"warren.yaml", "tunnels.yaml", "cleanup.yaml"} {
		if diff := cmp.Diff(read(t, filepath.Join(folder, name)), read(t, name)); diff != "" {
			t.Errorf("deploy/%s is not what the chart says; run make deploy (-want +got):\n%s", name, diff)
		}
	}
}

// TestChart renders the chart for every testdata/NAME.yaml and compares with testdata/NAME.golden. What
// is not among the templates of the golden file is as with the default values.
func TestChart(t *testing.T) {
	needHelm(t)
	lint(t)
	usual := templates(t)
	for _, values := range glob(t, "testdata/*.yaml") {
		t.Run(strings.TrimSuffix(filepath.Base(values), ".yaml"), func(t *testing.T) {
			lint(t, "--values", values)
			got := ""
			rendered := templates(t, "--values", values)
			for _, name := range sorted(rendered, usual) {
				switch text, ok := rendered[name]; {
				case !ok:
					got += "# Without " + name + "\n"
				case text != usual[name]:
					got += text
				}
			}
			golden := strings.TrimSuffix(values, ".yaml") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(read(t, golden), got); diff != "" {
				t.Errorf("rendered with %s (-want +got):\n%s", values, diff)
			}
		})
	}
}

func lint(t *testing.T, args ...string) {
	t.Helper()
	if out, err := helm(t, append([]string{"lint", "--strict", chart}, args...)...); err != nil {
		t.Errorf("helm lint %v: %v: %s", args, err, out)
	}
}

// templates returns what the chart renders, by template.
func templates(t *testing.T, args ...string) map[string]string {
	t.Helper()
	out, err := helm(t, append([]string{"template", "warren", chart, "--namespace", "warren-system"}, args...)...)
	if err != nil {
		t.Fatalf("helm template: %v: %s", err, out)
	}
	rendered := map[string]string{}
	for _, part := range strings.Split(out, "---\n# Source: ")[1:] {
		name, _, _ := strings.Cut(part, "\n")
		rendered[name] += "---\n# Source: " + part
	}
	return rendered
}

func sorted(maps ...map[string]string) []string {
	var names []string
	for _, m := range maps {
		for name := range m {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// TestValuesAreRefused: a value that would be ignored, or that Kubernetes would refuse, is an error.
func TestValuesAreRefused(t *testing.T) {
	needHelm(t)
	tests := []struct{ name, set, want string }{
		{name: "misspelt", set: "tolerartions[0].operator=Exists", want: "tolerartions"},
		{name: "misspelt key of the configuration", set: "config.modes=strict", want: "modes"},
		{name: "no such mode", set: "config.mode=off", want: "mode"},
		{name: "what the chart sets", set: "config.discovery=dir", want: "discovery"},
		{name: "port out of range", set: "config.port=70000", want: "port"},
		{name: "a capability by its name in C", set: "securityContext.capabilities={CAP_BPF}", want: "capabilities"},
		{name: "a word for a switch", set: "tunnels.enabled=please", want: "tunnels"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			out, err := helm(t, "template", chart, "--set", test.set)
			if err == nil || !strings.Contains(out, test.want) {
				t.Errorf("helm template --set %s: %v, want a complaint about %s:\n%s", test.set, err, test.want, out)
			}
		})
	}
}

// chartsOwn are the keys of the configuration that are the chart's or the node's to say.
var chartsOwn = []string{
	"node", "addresses", "prefixes", "discovery", "dir", "kubernetes", "etcd", "state-dir", "run-dir", "bpf-dir", "tunnel-process", "metrics-address",
}

// TestSchemaKnowsEveryKey: `config` of the values takes what the agent's configuration has.
func TestSchemaKnowsEveryKey(t *testing.T) {
	var schema struct {
		Properties struct {
			Config struct {
				Properties map[string]struct{ Enum []string }
			}
		}
	}
	if err := json.Unmarshal([]byte(read(t, filepath.Join(chart, "values.schema.json"))), &schema); err != nil {
		t.Fatal(err)
	}
	want, got := map[string][]string{}, map[string][]string{}
	for _, key := range config.Keys() {
		if top, _, _ := strings.Cut(key.Name, "."); !slices.Contains(chartsOwn, top) {
			want[top] = key.Values
		}
	}
	for name, property := range schema.Properties.Config.Properties {
		got[name] = property.Enum
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys of config in values.schema.json (-want +got):\n%s", diff)
	}
}

// TestConfigurationLoads: the agent understands the file that the chart makes.
func TestConfigurationLoads(t *testing.T) {
	manifest := read(t, "warren.yaml")
	_, text, ok := strings.Cut(manifest, "  warren.yaml: |\n")
	if !ok {
		t.Fatal("warren.yaml has no configuration")
	}
	text, _, _ = strings.Cut(text, "---\n")
	path := filepath.Join(t.TempDir(), "warren.yaml")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "\n    ", "\n")[4:]), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if c.Discovery != config.DiscoveryKubernetes {
		t.Errorf("discovery by %s", c.Discovery)
	}
}

var (
	ofTheUnit   = regexp.MustCompile(`(?m)^CapabilityBoundingSet=(.*)$`)
	ofTheValues = regexp.MustCompile(`(?m)^  capabilities: \[(.*)\]$`)
)

// TestCapabilities: an agent may do the same as a service and as a pod.
func TestCapabilities(t *testing.T) {
	unit := ofTheUnit.FindStringSubmatch(read(t, "systemd/warren.service"))
	values := ofTheValues.FindStringSubmatch(read(t, filepath.Join(chart, "values.yaml")))
	if unit == nil || values == nil {
		t.Fatalf("no capabilities: %q, %q", unit, values)
	}
	want := strings.Fields(strings.ReplaceAll(unit[1], "CAP_", ""))
	if diff := cmp.Diff(want, strings.Split(values[1], ", ")); diff != "" {
		t.Errorf("capabilities (-systemd unit +chart):\n%s", diff)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %v, %v", pattern, paths, err)
	}
	return paths
}
