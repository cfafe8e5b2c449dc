package kube

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"warren/internal/discovery/record/recordtest"
	"warren/internal/lab/control"
)

// testRights compares all that RBAC lets an agent do.
func testRights(t *testing.T, plane *control.Plane, agent string) {
	list := ""
	for _, namespace := range []string{"default", namespace, "kube-system"} {
		list += "# in the namespace " + namespace + "\n" + kubectl(t, plane, "--kubeconfig="+agent, "--namespace="+namespace, "auth", "can-i", "--list") + "\n"
	}
	var lines []string
	for line := range strings.Lines(list) {
		lines = append(lines, strings.Join(strings.Fields(line), " ")) // columns are as wide as their longest cell
	}
	recordtest.Golden(t, "testdata/rights.golden", strings.Join(lines, "\n")+"\n")
}

// write is one attempt to write a WarrenNode.
type write struct {
	name      string
	input     string
	arguments []string
	want      string // what the refusal says; "" is allowed
}

func (w write) try(t *testing.T, plane *control.Plane, kubeconfig string) {
	t.Helper()
	_, err := plane.Kubectl(t.Context(), w.input, append([]string{"--kubeconfig=" + kubeconfig}, w.arguments...)...)
	switch {
	case w.want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case w.want != "" && err == nil:
		t.Error("allowed")
	case w.want != "" && (!strings.Contains(err.Error(), w.want) || !strings.Contains(err.Error(), "(Forbidden)")):
		t.Errorf("refused with %v, want %q, Forbidden", err, w.want)
	}
}

// record is a WarrenNode; a change may do anything to it.
func record(name string, change func(metadata, spec map[string]any)) string {
	key := sha256.Sum256([]byte(name))
	metadata := map[string]any{"name": name}
	spec := map[string]any{
		"cluster": "default", "addresses": []string{"192.0.2.1"}, "prefixes": []string{}, "issued": "2026-11-30T12:00:00Z", "capabilities": []string{}, "version": "test",
		"keys": []map[string]any{{"public": base64.StdEncoding.EncodeToString(key[:]), "epoch": 1, "port": 51880}},
	}
	if change != nil {
		change(metadata, spec)
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "warren.network/v1alpha1", "kind": "WarrenNode", "metadata": metadata, "spec": spec})
	if err != nil {
		panic(err) // it has nothing but text, numbers and lists
	}
	return string(text)
}

var (
	applied = []string{"apply", "--server-side", "--force-conflicts", "--field-manager=warren-agent", "-f", "-"}
	created = []string{"create", "-f", "-"}
)

// testOwnNodeOnly is what the agent on n1 does to its own WarrenNode and to n2's.
func testOwnNodeOnly(t *testing.T, plane *control.Plane, agent string) {
	const onlyOwn = "the agent on node n1 writes WarrenNode n1 only, not n2: check that it was started with --node $(NODE_NAME)"
	const noNode = "the token names no node, so nobody knows which WarrenNode it may write"
	unbound := withToken(t, plane, "nobody")
	uid := kubectl(t, plane, "get", "node", "n1", "--output=jsonpath={.metadata.uid}")
	owned := func(kind, owner string) string {
		return record("n1", func(metadata, _ map[string]any) {
			metadata["ownerReferences"] = []map[string]any{{"apiVersion": "v1", "kind": kind, "name": owner, "uid": uid}}
		})
	}
	apply(t, plane, record("n2", nil))
	status := []string{"--subresource=status", "--type=merge", "--patch={\"status\":{\"mode\":\"strict\"}}"}
	tests := []struct {
		as string
		write
	}{
		{agent, write{name: "own, created", input: record("n1", nil), arguments: created}},
		{agent, write{name: "own, applied", input: owned("Node", "n1"), arguments: applied}},
		{agent, write{name: "own status", arguments: append([]string{"patch", "warrennode", "n1"}, status...)}},
		{agent, write{name: "own, of another Node", input: owned("Node", "n2"), arguments: applied, want: "WarrenNode n1 may belong to the Node of that name only"}},
		{agent, write{name: "own, of something else", input: owned("Namespace", "n1"), arguments: applied, want: "WarrenNode n1 may belong to the Node of that name only"}},
		{agent, write{name: "another's, replaced", input: record("n2", nil), arguments: []string{"replace", "-f", "-"}, want: onlyOwn}},
		{agent, write{name: "another's, applied", input: record("n2", nil), arguments: applied, want: onlyOwn}},
		{agent, write{name: "another's label", arguments: []string{"label", "warrennode", "n2", "a=b"}, want: onlyOwn}},
		{agent, write{name: "another's status", arguments: append([]string{"patch", "warrennode", "n2"}, status...), want: onlyOwn}},
		{agent, write{name: "another's, deleted", arguments: []string{"delete", "warrennode", "n2"}, want: onlyOwn}},
		{agent, write{name: "of no node, created", input: record("n3", nil), arguments: created, want: "writes WarrenNode n1 only, not n3"}},
		{agent, write{name: "of a name that the API server makes", arguments: created, want: "writes WarrenNode n1 only",
			input: record("", func(metadata, _ map[string]any) { metadata["generateName"] = "n1" })}},
		{agent, write{name: "configuration", arguments: []string{"create", "-f", "-"}, want: `cannot create resource "warrenconfigs"`,
			input: "{apiVersion: warren.network/v1alpha1, kind: WarrenConfig, metadata: {name: default}, spec: {mode: observe}}"}},
		{unbound, write{name: "without a node, applied", input: record("n1", nil), arguments: applied, want: noNode}},
		{unbound, write{name: "without a node, deleted", arguments: []string{"delete", "warrennode", "n2"}, want: noNode}},
		{plane.Admin(), write{name: "administrator", input: record("n2", nil), arguments: applied}},
		{agent, write{name: "own, deleted", arguments: []string{"delete", "warrennode", "n1"}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.try(t, plane, test.as) })
	}
}

// testOwnAddressesOnly is what the agent on n1 says of where n1 is; n2 is at 10.99.0.12 and fd00:99::12 with
// 10.244.2.0/24 behind it.
func testOwnAddressesOnly(t *testing.T, plane *control.Plane, agent string) {
	const anAddress = "WarrenNode n1 may not have an address of Node n2, or one in its podCIDRs: delete that Node if its machine is gone"
	const aPrefix = "WarrenNode n1 may not have a prefix with addresses or podCIDRs of Node n2: delete that Node if its machine is gone"
	at := func(addresses ...string) string {
		return record("n1", func(_, spec map[string]any) { spec["addresses"] = addresses })
	}
	before := func(prefixes ...string) string {
		return record("n1", func(_, spec map[string]any) { spec["prefixes"] = prefixes })
	}
	tests := []write{
		{name: "its Node's addresses and podCIDR", input: record("n1", func(_, spec map[string]any) {
			spec["addresses"], spec["prefixes"] = []string{"10.99.0.11"}, []string{"10.244.1.0/24"}
		})},
		{name: "what no Node has", input: record("n1", func(_, spec map[string]any) {
			spec["addresses"], spec["prefixes"] = []string{"192.0.2.7", "2001:db8::7"}, []string{"10.42.7.3/32", "fd00:42::/64"}
		})},
		{name: "another's address", input: at("10.99.0.11", "10.99.0.12"), want: anAddress},
		{name: "another's address, written otherwise", input: at("fd00:0099::0012"), want: anAddress},
		{name: "prefix around another's address", input: before("10.99.0.12/31"), want: aPrefix},
	}
	ofPods := []write{
		{name: "address of another's pod", input: at("10.244.2.9"), want: anAddress},
		{name: "another's podCIDR", input: before("10.244.1.0/24", "10.244.2.0/24"), want: aPrefix},
		{name: "part of another's podCIDR", input: before("10.244.2.128/32"), want: aPrefix},
		{name: "prefix around another's podCIDR", input: before("10.244.0.0/16"), want: aPrefix},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.arguments = applied
			test.try(t, plane, agent)
		})
	}
	for _, test := range ofPods {
		t.Run(test.name+", where podCIDRs mean nothing", func(t *testing.T) {
			test.arguments, test.want = applied, ""
			test.try(t, plane, agent)
		})
	}
	write{input: before("10.244.1.0/24"), arguments: applied}.try(t, plane, agent) // what is said again is not judged again
	heedPodCIDRs(t, plane, agent, before("10.244.2.64/32"))
	for _, test := range ofPods {
		t.Run(test.name, func(t *testing.T) {
			test.arguments = applied
			test.try(t, plane, agent)
		})
	}
	t.Run("when the other Node is gone", func(t *testing.T) {
		kubectl(t, plane, "delete", "node", "n2")
		eventually(t, 30*time.Second, "the API server lets n1 have what n2 had", func() bool {
			_, err := plane.Kubectl(t.Context(), at("10.99.0.12"), append([]string{"--kubeconfig=" + agent}, applied...)...)
			return err == nil
		})
	})
}

// heedPodCIDRs makes the policy what it is with policy.podCIDRs=true, and returns when it refuses a record.
func heedPodCIDRs(t *testing.T, plane *control.Plane, agent, refused string) {
	t.Helper()
	const policy = "validatingadmissionpolicy/warren-own-addresses-only"
	text := kubectl(t, plane, "get", policy, "-o", "yaml")
	heeding := strings.Replace(text, `expression: "false"`, `expression: "true"`, 1)
	if heeding == text {
		t.Fatalf("nothing to switch in\n%s", text)
	}
	if _, err := plane.Kubectl(t.Context(), heeding, "replace", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "the policy heeds podCIDRs", func() bool {
		_, err := plane.Kubectl(t.Context(), refused, append([]string{"--kubeconfig=" + agent, "apply", "--dry-run=server"}, applied[1:]...)...)
		return err != nil
	})
}
