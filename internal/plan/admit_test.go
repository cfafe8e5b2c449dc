package plan

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warren/internal/cluster"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func id(name string) cluster.NodeID {
	return cluster.NodeID{Cluster: cluster.DefaultCluster, Name: name}
}

func publicKey(n byte) cluster.PublicKey { return cluster.PublicKey{n, 31: 1} }

// node returns a record: name "n3" has address 10.0.0.3 and prefix 10.42.3.0/24.
func node(name string, key byte, age int) cluster.Node {
	digit := name[len(name)-1:]
	return cluster.Node{
		ID:        id(name),
		Addresses: []netip.Addr{netip.MustParseAddr("10.0.0." + digit)},
		Prefixes:  []netip.Prefix{netip.MustParsePrefix("10.42." + digit + ".0/24")},
		Keys:      []cluster.Key{{Public: publicKey(key), Epoch: 1, Port: cluster.DefaultPort}},
		Issued:    epoch.Add(time.Duration(age) * time.Second),
	}
}

func with(n cluster.Node, change func(*cluster.Node)) cluster.Node {
	change(&n)
	return n
}

func TestAdmit(t *testing.T) {
	self := node("n1", 1, 0)
	n2, n3 := node("n2", 2, 0), node("n3", 3, 0)
	copycat := node("n3", 2, -1000) // n3 with n2's key, and a clock that is behind
	rotated := with(n2, func(n *cluster.Node) {
		n.Keys = append(slices.Clone(n.Keys), cluster.Key{Public: publicKey(8), Epoch: 2, Port: cluster.DefaultPort + 1})
	})
	for _, test := range []struct {
		name        string
		records     []cluster.Node
		before      []cluster.Node
		policy      KeyPolicy
		peers       []cluster.Node
		candidates  []string
		unreachable []string
		refused     string // part of the problem
	}{
		{name: "two good records", records: []cluster.Node{n3, n2, self}, peers: []cluster.Node{n2, n3}},
		{name: "own record is no peer", records: []cluster.Node{self}},
		{
			name: "another machine has this node's name", records: []cluster.Node{node("n1", 9, 0), n2}, peers: []cluster.Node{n2},
			refused: "another machine publishes this node's name",
		},
		{
			name: "a newcomer has this node's key", records: []cluster.Node{node("n3", 1, 0), n2}, peers: []cluster.Node{n2},
			unreachable: []string{"n3"}, refused: "is this node's own key",
		},
		{
			name: "a newcomer copies a peer's key, however old it says it is (cilium 19344)", records: []cluster.Node{copycat, n2},
			before: []cluster.Node{n2}, peers: []cluster.Node{n2}, unreachable: []string{"n3"}, refused: "already belongs to default/n2",
		},
		{
			name: "a peer starts to claim another's key: both stay as they were", records: []cluster.Node{copycat, n2},
			before: []cluster.Node{n2, n3}, peers: []cluster.Node{n2, n3}, refused: "already belongs to default/n2",
		},
		{
			name: "two newcomers with one key: the older record has it", records: []cluster.Node{n2, copycat},
			peers: []cluster.Node{copycat}, unreachable: []string{"n2"}, refused: "already belongs to default/n3",
		},
		{
			name: "the owner of the key is gone", records: []cluster.Node{copycat}, before: []cluster.Node{n2},
			peers: []cluster.Node{copycat},
		},
		{
			name: "zero key", records: []cluster.Node{n2, with(n3, func(n *cluster.Node) { n.Keys = []cluster.Key{{Epoch: 1, Port: 1}} })},
			before: []cluster.Node{n2, n3}, peers: []cluster.Node{n2, n3}, refused: "all-zero key",
		},
		{
			name: "no common family", records: []cluster.Node{with(n2, func(n *cluster.Node) { n.Addresses = []netip.Addr{netip.MustParseAddr("fd00::2")} })},
			unreachable: []string{"n2"}, refused: "no address of a family",
		},
		{
			name: "a new key of a node replaces the old one", records: []cluster.Node{node("n2", 8, 1)}, before: []cluster.Node{n2},
			peers: []cluster.Node{node("n2", 8, 1)},
		},
		{
			name: "a new key of a node that nobody announced is held", records: []cluster.Node{node("n2", 8, 1)}, before: []cluster.Node{n2},
			policy: KeyPolicy{Hold: true}, peers: []cluster.Node{n2}, candidates: []string{"n2"}, refused: "its key has changed",
		},
		{
			name: "the held key is released", records: []cluster.Node{node("n2", 8, 1)}, before: []cluster.Node{n2},
			policy: KeyPolicy{Hold: true, Released: map[cluster.NodeID]cluster.PublicKey{id("n2"): publicKey(8)}}, peers: []cluster.Node{node("n2", 8, 1)},
		},
		{
			name: "another key than the released one is held", records: []cluster.Node{node("n2", 9, 1)}, before: []cluster.Node{n2},
			policy: KeyPolicy{Hold: true, Released: map[cluster.NodeID]cluster.PublicKey{id("n2"): publicKey(8)}},
			peers:  []cluster.Node{n2}, candidates: []string{"n2"}, refused: "its key has changed",
		},
		{
			name: "a key that the old one announced is not held", records: []cluster.Node{rotated}, before: []cluster.Node{n2},
			policy: KeyPolicy{Hold: true}, peers: []cluster.Node{rotated},
		},
		{
			name: "the first key of a node is not held", records: []cluster.Node{n2}, policy: KeyPolicy{Hold: true}, peers: []cluster.Node{n2},
		},
		{
			name: "a changed key that is another's is no candidate", records: []cluster.Node{n2, node("n3", 2, 1)}, before: []cluster.Node{n2, n3},
			policy: KeyPolicy{Hold: true}, peers: []cluster.Node{n2, n3}, refused: "already belongs to default/n2",
		},
		{name: "a record that is gone is no peer", before: []cluster.Node{n2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Admit(self, recordsOf(test.records), recordsOf(test.before), test.policy)
			if diff := cmp.Diff(test.candidates, namesOf(got.Candidates)); diff != "" {
				t.Errorf("candidates (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(recordsOf(test.peers), got.Peers, cmp.Comparer(func(a, b *Record) bool { return equalNodes(&a.Node, &b.Node) })); diff != "" {
				t.Errorf("peers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.unreachable, namesOf(got.Unreachable)); diff != "" {
				t.Errorf("unreachable (-want +got):\n%s", diff)
			}
			var problems []string
			for _, r := range got.Refused {
				problems = append(problems, r.Problem)
				if r.Remedy == "" {
					t.Errorf("%s is refused without a remedy: %s", r.Node, r.Problem)
				}
			}
			all := strings.Join(problems, "\n")
			if (test.refused == "") != (all == "") || !strings.Contains(all, test.refused) {
				t.Errorf("refused: %q, want %q", all, test.refused)
			}
		})
	}
}

func namesOf(records []*Record) []string {
	var list []string
	for _, record := range records {
		list = append(list, record.ID.Name)
	}
	return list
}

func recordsOf(nodes []cluster.Node) []*Record {
	var records []*Record
	for _, n := range nodes {
		records = append(records, NewRecord(n))
	}
	return records
}
