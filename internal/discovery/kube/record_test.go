package kube

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"warren/internal/cluster"
	"warren/internal/discovery/record/recordtest"
)

func ownedBy(name, uid string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(uid)}}
}

// full is a node with something in every field.
func full() cluster.Node {
	node := recordtest.Sample("n1", 1)
	node.Prefixes = append(node.Prefixes, netip.MustParsePrefix("fd00:42::/64"))
	node.Keys = []cluster.Key{{Public: recordtest.PublicKey(3), Epoch: 9, Port: 51880}, {Public: recordtest.PublicKey(4), Epoch: 10, Port: 51881}}
	node.Capabilities = []string{"leaving"}
	return node
}

func TestRecordRoundTrip(t *testing.T) {
	bare := recordtest.Sample("n2.example", 2)
	bare.Prefixes, bare.Version = nil, ""
	for _, node := range []cluster.Node{full(), recordtest.Sample("n1", 1), bare} {
		got, problems := decodeRecord(node.ID.Name, encode(specOf(node)))
		if len(problems) > 0 {
			t.Errorf("%s: %v", node.ID, problems)
		}
		if diff := cmp.Diff(node, got, recordtest.SameNode); diff != "" {
			t.Errorf("%s (-want +got):\n%s", node.ID, diff)
		}
	}
}

// TestRecordIsWrittenAlike: what is written is the same whatever order the keys are in, and lists are there also when
// they are empty, so that they belong to the agent.
func TestRecordIsWrittenAlike(t *testing.T) {
	turned := full()
	slices.Reverse(turned.Keys)
	turned.Issued = turned.Issued.In(recordtest.Issued.Location()).Add(999)
	if diff := cmp.Diff(string(encode(specOf(full()))), string(encode(specOf(turned)))); diff != "" {
		t.Errorf("keys in another order (-want +got):\n%s", diff)
	}
	bare := string(encode(specOf(cluster.Node{})))
	for _, list := range []string{`"addresses":[]`, `"prefixes":[]`, `"keys":[]`, `"capabilities":[]`} {
		if !strings.Contains(bare, list) {
			t.Errorf("no %s in %s", list, bare)
		}
	}
}

// TestRecordProblems holds what is said of broken objects against a golden file.
func TestRecordProblems(t *testing.T) {
	good := string(encode(specOf(full())))
	with := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("%s is not in %s", old, good)
		}
		return strings.Replace(good, old, new, 1)
	}
	key := recordtest.PublicKey(4).String()
	var text strings.Builder
	for _, test := range []struct{ name, spec string }{
		{"no spec", ""},
		{"not an object", `"n1"`},
		{"unknown field", with(`"cluster"`, `"colour":"red","cluster"`)},
		{"field twice", with(`"cluster"`, `"cluster":"x","cluster"`)},
		{"another case", with(`"cluster"`, `"Cluster"`)},
		{"text for a number", with(`"epoch":9`, `"epoch":"9"`)},
		{"port too large", with(`"port":51881`, `"port":65536`)},
		{"port 0", with(`"port":51881`, `"port":0`)},
		{"no address", with(`"10.0.0.1","fd00::1"`, ``)},
		{"not an address", with(`10.0.0.1`, `10.0.0`)},
		{"loopback", with(`10.0.0.1`, `127.0.0.1`)},
		{"not a prefix", with(`10.42.1.0/24`, `10.42.1.0`)},
		{"prefix with more bits", with(`10.42.1.0/24`, `10.42.1.1/24`)},
		{"everything", with(`10.42.1.0/24`, `0.0.0.0/0`)},
		{"short key", with(key, key[1:])},
		{"zero key", with(key, cluster.PublicKey{}.String())},
		{"same key twice", with(key, recordtest.PublicKey(3).String())},
		{"same epoch twice", with(`"epoch":10`, `"epoch":9`)},
		{"not a time", with(`2026-11-30T`, `30.11.2026 `)},
		{"a capability that is a sentence", with(`"leaving"`, `"is leaving"`)},
		{"a version with a bell", with(`v0.1.0`, `v0.1.0\u0007`)},
		{"no cluster", with(`"cluster":"default"`, `"cluster":""`)},
		{"two things", strings.Replace(with(`10.0.0.1`, `x`), `fd00::1`, `y`, 1)},
	} {
		_, problems := decodeRecord("n1", []byte(test.spec))
		fmt.Fprintf(&text, "%s:\n", test.name)
		for _, p := range problemsOf("WarrenNode n1", problems, "correct it") {
			fmt.Fprintf(&text, "  %s\n", p)
		}
	}
	recordtest.Golden(t, "testdata/problems.golden", text.String())
}

// TestEntry follows one WarrenNode through what people do to it.
func TestEntry(t *testing.T) {
	node, changed := full(), full()
	changed.Version = "v0.2.0"
	garbage := shown(node, "")
	garbage.Spec = []byte(`{"keys":"none"}`)
	renamed := shown(node, "")
	renamed.OwnerReferences = ownedBy("n7", "7")
	other := shown(node, "")
	other.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "x", UID: "8"}}

	decode := entries("n1")
	var e entry
	for _, step := range []struct {
		name     string
		object   *object
		good     *cluster.Node
		says     bool
		problems int
	}{
		{"broken from the start", garbage, nil, false, 1},
		{"put right", shown(node, "1"), &node, true, 0},
		{"broken later: the last good one stays", garbage, &node, false, 1},
		{"still broken", garbage, &node, false, 1},
		{"under another node's name", renamed, &node, false, 1},
		{"owned by what is no Node", other, &node, true, 0},
		{"changed", shown(changed, "1"), &changed, true, 0},
	} {
		e = decode(step.object, e)
		if (e.slot.Says() != nil) != step.says || len(e.slot.Problems()) != step.problems {
			t.Errorf("%s: says %v, problems %v", step.name, e.slot.Says(), e.slot.Problems())
		}
		if diff := cmp.Diff(step.good, e.slot.Node(), recordtest.SameNode); diff != "" {
			t.Errorf("%s: last good (-want +got):\n%s", step.name, diff)
		}
	}
	if diff := cmp.Diff([]types.UID{"1"}, e.owners); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
}

// TestEntryStatus: the status is kept of the own object alone.
func TestEntryStatus(t *testing.T) {
	o := shown(full(), "")
	o.Status = []byte(`{"mode":"strict"}`)
	if e := entries("n1")(o, entry{}); string(e.status) != `{"mode":"strict"}` {
		t.Errorf("own status %q", e.status)
	}
	if e := entries("n2")(o, entry{}); e.status != nil {
		t.Errorf("another's status %q is kept", e.status)
	}
}

// FuzzDecodeRecord: whatever is in the object, what is read of it can be written and read again.
func FuzzDecodeRecord(f *testing.F) {
	f.Add("n1", encode(specOf(full())))
	f.Add("n1", []byte(`{"addresses":["::ffff:10.0.0.1"],"keys":[{"public":"","epoch":-1}]}`))
	f.Add("", []byte(`null`))
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		node, problems := decodeRecord(name, text)
		if len(problems) > 0 {
			return
		}
		again, problems := decodeRecord(name, encode(specOf(node)))
		if diff := cmp.Diff(node, again, recordtest.SameNode); len(problems) > 0 || diff != "" {
			t.Errorf("written and read again: %v (-want +got):\n%s", problems, diff)
		}
	})
}
