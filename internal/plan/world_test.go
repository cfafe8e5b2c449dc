package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"warren/internal/cluster"
)

// anyChange draws news about four nodes that fight for few keys and addresses.
func anyChange(t *rapid.T) Change {
	name := rapid.SampledFrom([]string{"n2", "n3", "n4", "n5"}).Draw(t, "node")
	if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
		gone := id(name)
		return Change{Delete: &gone}
	}
	n := node(name, rapid.ByteRange(1, 5).Draw(t, "key"), rapid.IntRange(0, 2).Draw(t, "age"))
	if rapid.IntRange(0, 4).Draw(t, "address") == 0 {
		n.Addresses = []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", rapid.IntRange(1, 5).Draw(t, "host")))}
	}
	if rapid.IntRange(0, 9).Draw(t, "broken") == 0 {
		n.Keys = nil
	}
	return Change{Upsert: &n}
}

// anyRotation adds keys of later epochs to a record, and may take away the first.
func anyRotation(t *rapid.T, n *cluster.Node) {
	for epoch := uint32(2); epoch <= 3 && len(n.Keys) > 0 && rapid.Bool().Draw(t, "another key"); epoch++ {
		n.Keys = append(n.Keys, cluster.Key{Public: publicKey(rapid.ByteRange(1, 9).Draw(t, "its public key")), Epoch: epoch, Port: cluster.DefaultPort + 1})
	}
	if len(n.Keys) > 1 && rapid.Bool().Draw(t, "without the first") {
		n.Keys = n.Keys[1:]
	}
}

// wanted is what a node whose key has never changed, like those of its peers, must have.
func wanted(w *World, scope Scope) State {
	state := w.WantTunnel(scope, 0)
	state.Entries = w.WantEntries(scope).Entries
	return state
}

// anyPath draws news about the way to one of the keys that anyChange draws.
func anyPath(t *rapid.T) Change {
	path := Path{
		MTU:  uint16(rapid.SampledFrom([]int{0, 1280, 1408}).Draw(t, "mtu")),
		Send: rapid.Bool().Draw(t, "send"), Silent: rapid.Bool().Draw(t, "silent"),
	}
	return Change{Paths: map[cluster.PublicKey]Path{publicKey(rapid.ByteRange(1, 9).Draw(t, "key")): path}}
}

// followed is a node that is kept as a world wants it, by changes alone.
type followed struct {
	entries State
	tunnels [Slots]State
}

func (f *followed) follow(w *World) {
	scope := w.Changed()
	f.entries.Apply(Diff(w.WantEntries(scope), scope.Of(f.entries), Options{Prune: true}))
	for slot := range Slot(Slots) {
		f.tunnels[slot].Apply(Diff(w.WantTunnel(scope, slot), scope.Of(f.tunnels[slot]), Options{Prune: true}))
	}
}

// TestWorldChangesAreComplete follows a world by its changes alone and compares with building anew.
func TestWorldChangesAreComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		world := NewWorld(cluster.SourceDirectory, false)
		self := node("n1", 1, 0)
		world.Apply(Change{Self: &self})
		have := followed{NewState(), [Slots]State{NewState(), NewState(), NewState(), NewState()}}
		for range rapid.IntRange(1, 15).Draw(t, "rounds") {
			change := anyChange(t)
			if change.Upsert != nil {
				anyRotation(t, change.Upsert)
			}
			world.Apply(change)
			if rapid.Bool().Draw(t, "path change") {
				world.Apply(anyPath(t))
			}
			if rapid.IntRange(0, 9).Draw(t, "address change") == 0 {
				self.Prefixes = []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.42.%d.0/24", rapid.IntRange(1, 5).Draw(t, "own")))}
				world.Apply(Change{Self: &self})
			}
			have.follow(world)
			all := Scope{All: true}
			if diff := cmp.Diff(world.WantEntries(all).Entries, have.entries.Entries, byValue); diff != "" {
				t.Fatalf("entries, followed by changes (-want +got):\n%s", diff)
			}
			for slot, tunnel := range have.tunnels {
				if diff := cmp.Diff(world.WantTunnel(all, Slot(slot)), tunnel, byValue); diff != "" {
					t.Fatalf("slot %d, followed by changes (-want +got):\n%s", slot, diff)
				}
				for prefix, key := range tunnel.AllowedIPs {
					if _, ok := tunnel.Peers[key]; !ok {
						t.Fatalf("slot %d: %s is given to a peer that is not there", slot, prefix)
					}
				}
			}
		}
	})
}

// TestWorldForgetsTheOrder: without refused records, which leave the node's last admitted one in force,
// the state is a function of the present records.
func TestWorldForgetsTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		present := map[string]cluster.Node{}
		world := NewWorld(cluster.SourceDirectory, false)
		self := node("n1", 1, 0)
		world.Apply(Change{Self: &self})
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			change := anyChange(t)
			if change.Delete != nil {
				delete(present, change.Delete.Name)
			} else if n := change.Upsert; n.Validate() == nil && n.Addresses[0] != self.Addresses[0] {
				n.Keys[0].Public = publicKey(n.ID.Name[1]) // everyone has a key of its own
				present[n.ID.Name] = *n
			} else {
				continue
			}
			world.Apply(change)
		}
		fresh := NewWorld(cluster.SourceDirectory, false)
		for _, n := range rapid.Permutation(slices.SortedFunc(maps.Values(present), func(a, b cluster.Node) int { return a.ID.Compare(b.ID) })).Draw(t, "order") {
			fresh.Apply(Change{Upsert: &n})
		}
		fresh.Apply(Change{Self: &self}) // last, for once
		if diff := cmp.Diff(wanted(fresh, Scope{All: true}), wanted(world, Scope{All: true}), byValue); diff != "" {
			t.Fatalf("by history, not by facts (-fresh +history):\n%s", diff)
		}
	})
}

func TestWorldSituations(t *testing.T) {
	self := node("n1", 1, 0)
	n2, n3 := node("n2", 2, 0), node("n3", 3, 5)
	replacement := with(n3, func(n *cluster.Node) { n.Addresses = n2.Addresses })
	copycat := with(n3, func(n *cluster.Node) { n.Keys = n2.Keys })
	for _, test := range []struct {
		name    string
		records []cluster.Node
		prefix  string
		peer    cluster.PublicKey // zero: nobody
		entry   Entry
	}{
		{
			name: "a peer's address is encrypted to", records: []cluster.Node{n2}, prefix: "10.0.0.2/32", peer: publicKey(2),
			entry: Entry{Identity: 6, Endpoint: n2.Addresses[0], Key: 1, HasPair: true, Flags: cluster.FlagNode},
		},
		{
			name: "a peer's pods go through its address", records: []cluster.Node{n2}, prefix: "10.42.2.0/24", peer: publicKey(2),
			entry: Entry{Identity: 3, Endpoint: n2.Addresses[0], Key: 1, HasPair: true},
		},
		{
			name: "own addresses are local and nobody's", records: []cluster.Node{n2}, prefix: "10.0.0.1/32",
			entry: Entry{Identity: 1, Flags: cluster.FlagNode | cluster.FlagLocal},
		},
		{
			name: "a replaced machine with the same address: the younger record has it (k3s 5216)", records: []cluster.Node{n2, replacement},
			prefix: "10.0.0.2/32", peer: publicKey(3),
			entry: Entry{Identity: 6, Endpoint: n2.Addresses[0], Key: 1, HasPair: true, Flags: cluster.FlagNode},
		},
		{
			name: "a refused newcomer is known, and nothing is encrypted to it", records: []cluster.Node{n2, copycat}, prefix: "10.0.0.3/32",
			entry: Entry{Identity: 6, Flags: cluster.FlagNode},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			world := NewWorld(cluster.SourceDirectory, false)
			world.Apply(Change{Self: &self}, Change{Underlay: map[netip.Addr]uint32{}})
			for _, n := range test.records {
				world.Apply(Change{Upsert: &n})
			}
			state := wanted(world, Scope{All: true})
			prefix := netip.MustParsePrefix(test.prefix)
			if diff := cmp.Diff(test.entry, state.Entries[prefix], byValue); diff != "" {
				t.Errorf("entry (-want +got):\n%s", diff)
			}
			if got := state.AllowedIPs[prefix]; got != test.peer {
				t.Errorf("peer %s, want %s", got.Short(), test.peer.Short())
			}
		})
	}
}

func TestEndpointRoaming(t *testing.T) {
	self, n2 := node("n1", 1, 0), node("n2", 2, 0)
	n2.Addresses = append(n2.Addresses, netip.MustParseAddr("10.9.0.2"))
	world := NewWorld(cluster.SourceDirectory, false)
	world.Apply(Change{Self: &self}, Change{Upsert: &n2})
	for _, test := range []struct{ name, actual, want string }{
		{"where it was put", "10.0.0.2:51880", "10.0.0.2:51880"},
		{"at another address of the node", "10.9.0.2:51880", "10.0.0.2:51880"},
		{"at a pod's address (cilium 36491)", "10.42.2.1:51880", "10.42.2.1:51880"},
		{"at another port", "10.0.0.2:4000", "10.0.0.2:4000"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := world.Endpoint(0, publicKey(2), netip.MustParseAddrPort(test.actual))
			if got.String() != test.want {
				t.Errorf("seen as %s, want %s", got, test.want)
			}
		})
	}
}

// TestMemoriesGoWhenSynced: with the peers of an earlier run or without, the synced state is the same,
// and until then a peer that nobody has confirmed yet is encrypted to.
func TestMemoriesGoWhenSynced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		self := node("n1", 1, 0)
		remembering, fresh := NewWorld(cluster.SourceDirectory, false), NewWorld(cluster.SourceDirectory, false)
		remembering.Apply(Change{Self: &self}, Change{Remember: []cluster.Node{node("n2", 2, 0), node("n4", 4, 0)}})
		fresh.Apply(Change{Self: &self})
		if got := wanted(remembering, Scope{All: true}).AllowedIPs[netip.MustParsePrefix("10.42.2.0/24")]; got != publicKey(2) {
			t.Fatalf("before any record, 10.42.2.0/24 goes to %s", got.Short())
		}
		apiServer := []cluster.Fact{{Prefix: netip.MustParsePrefix("10.0.0.2/32"), Info: cluster.Info{Labels: []string{"reserved:kube-apiserver"}}}}
		remembering.Apply(Change{Statement: &Statement{Source: cluster.SourceRestored, Resource: "file/apiserver.yaml", Facts: apiServer}})
		have := wanted(remembering, remembering.Changed())
		for range rapid.IntRange(0, 8).Draw(t, "changes") {
			change := anyChange(t)
			if n := change.Upsert; n != nil {
				if n.Validate() != nil || n.Addresses[0] == self.Addresses[0] {
					continue
				}
				n.Keys[0].Public = publicKey(n.ID.Name[1] - '0')
			}
			remembering.Apply(change)
			fresh.Apply(change)
		}
		changes := []Change{{Synced: true}}
		for _, gone := range remembering.Remembered() {
			changes = append(changes, Change{Delete: &gone})
		}
		remembering.Apply(changes...)
		scope := remembering.Changed()
		have.Apply(Diff(wanted(remembering, scope), scope.Of(have), Options{Prune: true}))
		if diff := cmp.Diff(wanted(fresh, Scope{All: true}), have, byValue); diff != "" {
			t.Fatalf("after Synced (-fresh +remembering):\n%s", diff)
		}
	})
}

// TestWorldOutside: what is only known to be outside of the cluster is not the datapath's business.
func TestWorldOutside(t *testing.T) {
	const addr = "192.0.2.7"
	server := cluster.Fact{Prefix: netip.MustParsePrefix(addr + "/32"), Source: cluster.SourceKubeAPIServer, Resource: APIServers, Info: cluster.Info{Labels: []string{"reserved:kube-apiserver"}}}
	around := func(info cluster.Info) cluster.Fact {
		return cluster.Fact{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Source: cluster.SourceFile, Resource: "file/config", Info: info}
	}
	for _, test := range []struct {
		name  string
		facts []cluster.Fact
		known bool
	}{
		{"an API server", []cluster.Fact{server}, false},
		{"one that is never encrypted to", []cluster.Fact{server, around(cluster.Info{HasPair: true})}, true},
		{"one of which somebody says more", []cluster.Fact{server, around(cluster.Info{Labels: []string{"site:b"}})}, true},
		{"one on a node", []cluster.Fact{server, around(cluster.Info{Owner: cluster.NodeID{Cluster: "default", Name: "n2"}})}, true},
		{"a prefix of the world", []cluster.Fact{around(cluster.Info{Labels: []string{"cidr:192.0.2.0/24"}})}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			self, world := node("n1", 1, 0), NewWorld(cluster.SourceDirectory, false)
			world.Apply(Change{Self: &self})
			for _, fact := range test.facts {
				world.Apply(Change{Statement: &Statement{Source: fact.Source, Resource: fact.Resource, Facts: []cluster.Fact{fact}}})
			}
			found, known := world.Lookup(netip.MustParseAddr(addr))
			if known != test.known {
				t.Errorf("the datapath knows it: %t, want %t", known, test.known)
			}
			prefix, _, _ := world.Cache().Lookup(netip.MustParseAddr(addr))
			if got, has := wanted(world, Scope{All: true}).Entries[prefix]; has != known || got != found {
				t.Errorf("Lookup says %v %t, WantEntries %v %t", found, known, got, has)
			}
		})
	}
}

func TestWorldNeedsNoTurnOfNodeAndAPIServer(t *testing.T) {
	self, n2 := node("n1", 1, 0), node("n2", 2, 0)
	record := Change{Upsert: &n2}
	apiServer := Change{Statement: &Statement{
		Source: cluster.SourceKubeAPIServer, Resource: "file/apiserver.yaml",
		Facts: []cluster.Fact{{Prefix: netip.MustParsePrefix("10.0.0.2/32"), Info: cluster.Info{Labels: []string{"reserved:kube-apiserver"}}}},
	}}
	for name, order := range map[string][]Change{
		"API server first": {apiServer, record}, "node first": {record, apiServer}, "record comes, goes and comes": {record, apiServer, {Delete: &n2.ID}, record},
	} {
		t.Run(name, func(t *testing.T) {
			world := NewWorld(cluster.SourceDirectory, false)
			world.Apply(Change{Self: &self})
			for _, change := range order {
				world.Apply(change)
			}
			state := wanted(world, Scope{All: true})
			want := Entry{Identity: 7, Endpoint: n2.Addresses[0], Key: 1, HasPair: true, Flags: cluster.FlagNode}
			prefix := netip.MustParsePrefix("10.0.0.2/32")
			if diff := cmp.Diff(want, state.Entries[prefix], byValue); diff != "" {
				t.Errorf("entry (-want +got):\n%s", diff)
			}
			if state.AllowedIPs[prefix] != publicKey(2) {
				t.Errorf("allowed IP of %s", state.AllowedIPs[prefix].Short())
			}
		})
	}
}
