package kube

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warren/internal/discovery"
)

// lines shows settings, one a line.
func lines(settings []discovery.Setting) string {
	var text strings.Builder
	for _, s := range settings {
		fmt.Fprintf(&text, "%s = %s (%s)\n", s.Key, s.Value, strings.TrimPrefix(s.Where, "WarrenConfig default: "))
	}
	return text.String()
}

func TestSettings(t *testing.T) {
	control := map[string]string{"node-role.kubernetes.io/control-plane": "", "zone": "b"}
	for _, test := range []struct {
		name, spec string
		labels     map[string]string
		want       []string
		problems   []string
	}{
		{name: "no spec", spec: ``},
		{name: "everything", spec: `{"oversize":"icmp","mtu":1400,"mark":"0x20/0x20","port":51900,"exempt":["192.0.2.7/32 tcp/179","10.0.0.0/8"],"mode":"strict","rotationInterval":"720h"}`,
			want: []string{"rotation-interval = 720h (spec.rotationInterval)", "mode = strict (spec.mode)", "exempt = 192.0.2.7/32 tcp/179,10.0.0.0/8 (spec.exempt)",
				"port = 51900 (spec.port)", "mark = 0x20/0x20 (spec.mark)", "mtu = 1400 (spec.mtu)", "oversize = icmp (spec.oversize)"}},
		{name: "zero and none are values", spec: `{"mtu":0,"exempt":[]}`, want: []string{"exempt =  (spec.exempt)", "mtu = 0 (spec.mtu)"}},
		{name: "later entries win, value by value", labels: control,
			spec: `{"mode":"strict","mtu":1400,"nodes":[{"selector":{"matchLabels":{"zone":"b"}},"mode":"permissive","mtu":1300},
				{"selector":{"matchExpressions":[{"key":"node-role.kubernetes.io/control-plane","operator":"Exists"}]},"mode":"observe"},
				{"selector":{"matchLabels":{"zone":"c"}},"mode":"strict"}]}`,
			want: []string{"mode = observe (spec.nodes[1].mode)", "mtu = 1300 (spec.nodes[0].mtu)"}},
		{name: "a node without labels", spec: `{"mode":"strict","nodes":[{"selector":{"matchLabels":{"zone":"b"}},"mode":"permissive"},{"selector":{},"mtu":1300}]}`,
			want: []string{"mode = strict (spec.mode)", "mtu = 1300 (spec.nodes[1].mtu)"}},
		{name: "a selector that is none is for no node", labels: control,
			spec:     `{"mode":"strict","nodes":[{"selector":{"matchLabels":{"zone":"-"}},"mode":"observe"},{"selector":{"matchExpressions":[{"key":"zone","operator":"Near"}]},"mode":"observe"},{"mode":"observe"}]}`,
			want:     []string{"mode = strict (spec.mode)"},
			problems: []string{"WarrenConfig default: spec.nodes[0].selector", "WarrenConfig default: spec.nodes[1].selector"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := decodeConfig(&object{Spec: []byte(test.spec)}, configuration{})
			if diff := cmp.Diff(strings.Join(append(test.want, ""), "\n"), lines(c.settings(test.labels))); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
			var places []string
			for _, p := range c.problems {
				places = append(places, p.Where)
			}
			if diff := cmp.Diff(test.problems, places); diff != "" {
				t.Errorf("problems (-want +got):\n%s\n%v", diff, c.problems)
			}
		})
	}
}

// TestBrokenConfig: what was said before counts until it is put right.
func TestBrokenConfig(t *testing.T) {
	var c configuration
	for _, step := range []struct {
		spec, want string
		problems   int
	}{
		{`{"mode":"strict"}`, "mode = strict (spec.mode)\n", 0},
		{`{"mode":7}`, "mode = strict (spec.mode)\n", 1},
		{`{"mood":"observe"}`, "mode = strict (spec.mode)\n", 1},
		{`{"mode":"observe"}`, "mode = observe (spec.mode)\n", 0},
	} {
		c = decodeConfig(&object{Spec: []byte(step.spec)}, c)
		if got := lines(c.settings(nil)); got != step.want || len(c.problems) != step.problems {
			t.Errorf("%s: %q, problems %v", step.spec, got, c.problems)
		}
	}
}
