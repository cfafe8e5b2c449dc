package plan

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"warren/internal/cluster"
)

// anyState draws a small state, so that two of them overlap.
func anyState(t *rapid.T, label string) State {
	state := NewState()
	for key := range byte(4) {
		if rapid.Bool().Draw(t, label+" has peer") {
			port := rapid.SampledFrom([]uint16{51880, 51881}).Draw(t, label+" port")
			state.Peers[publicKey(key)] = Peer{Key: publicKey(key), Endpoint: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, key}), port)}
		}
	}
	for i := range byte(6) {
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 42, i, 0}), 24)
		owner := publicKey(rapid.ByteRange(0, 3).Draw(t, label+" owner"))
		if _, ok := state.Peers[owner]; ok {
			state.AllowedIPs[prefix] = owner
		}
		if rapid.Bool().Draw(t, label+" has entry") {
			state.Entries[prefix] = Entry{Identity: uint32(rapid.IntRange(1, 3).Draw(t, label+" identity"))}
		}
	}
	return state
}

func TestDiffLeadsToWhatIsWanted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want, have := anyState(t, "want"), anyState(t, "have")
		ops := Diff(want, have, Options{Prune: true})
		got := have.Clone()
		got.Apply(ops)
		if diff := cmp.Diff(want, got, byValue); diff != "" {
			t.Fatalf("after\n%s(-want +got):\n%s", ops, diff)
		}
		if again := Diff(want, got, Options{Prune: true}); again.Len() != 0 {
			t.Fatalf("not empty the second time:\n%s", again)
		}
	})
}

func TestDiffWithoutPruneRemovesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want, have := anyState(t, "want"), anyState(t, "have")
		got := have.Clone()
		got.Apply(Diff(want, have, Options{}))
		for prefix := range have.Entries {
			if _, ok := got.Entries[prefix]; !ok {
				t.Fatalf("entry %s is gone", prefix)
			}
		}
		for key := range have.Peers {
			if _, ok := got.Peers[key]; !ok {
				t.Fatalf("peer %s is gone", key.Short())
			}
		}
		for prefix := range have.AllowedIPs {
			if _, ok := got.AllowedIPs[prefix]; !ok {
				t.Fatalf("allowed IP %s is gone", prefix)
			}
		}
	})
}

// TestDiffOrderLosesNoPacket replays the operations one at a time: an address that is reachable
// before and after is reachable in between, and no address is sent to a peer that is not there.
func TestDiffOrderLosesNoPacket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		have, want := consistent(anyState(t, "have")), consistent(anyState(t, "want"))
		now := have.Clone()
		for _, step := range single(Diff(want, have, Options{Prune: true})) {
			now.Apply(step)
			for prefix := range now.Entries {
				peer, given := now.AllowedIPs[prefix]
				if _, there := now.Peers[peer]; !given || !there {
					t.Fatalf("after %swhat goes to %s is lost", step, prefix)
				}
			}
			for prefix := range have.Entries {
				if _, stays := want.Entries[prefix]; stays {
					if _, ok := now.Entries[prefix]; !ok {
						t.Fatalf("after %s%s is in clear", step, prefix)
					}
				}
			}
		}
	})
}

// consistent keeps the entries that have a peer.
func consistent(s State) State {
	for prefix := range s.Entries {
		if _, ok := s.AllowedIPs[prefix]; !ok {
			delete(s.Entries, prefix)
		}
	}
	return s
}

func single(ops Ops) []Ops {
	var steps []Ops
	for i := range ops.SetPeers {
		steps = append(steps, Ops{SetPeers: ops.SetPeers[i : i+1]})
	}
	for i := range ops.AllowedIPs {
		steps = append(steps, Ops{AllowedIPs: ops.AllowedIPs[i : i+1]})
	}
	for i := range ops.SetEntries {
		steps = append(steps, Ops{SetEntries: ops.SetEntries[i : i+1]})
	}
	for i := range ops.DeleteEntries {
		steps = append(steps, Ops{DeleteEntries: ops.DeleteEntries[i : i+1]})
	}
	for i := range ops.Orphans {
		steps = append(steps, Ops{Orphans: ops.Orphans[i : i+1]})
	}
	for i := range ops.RemovePeers {
		steps = append(steps, Ops{RemovePeers: ops.RemovePeers[i : i+1]})
	}
	return steps
}

var byValue = cmp.Options{
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	// The node of a peer is a name for people, and no operation changes it.
	cmp.Comparer(func(a, b Peer) bool { return a.Key == b.Key && a.Endpoint == b.Endpoint }),
}

// TestLocalEntriesComeFirst: before this node's own entries are there, nothing is encrypted from it.
func TestLocalEntriesComeFirst(t *testing.T) {
	self, n2 := node("n9", 9, 0), node("n2", 2, 0)
	world := NewWorld(cluster.SourceDirectory, false)
	world.Apply(Change{Self: &self}, Change{Upsert: &n2})
	ops := Diff(world.Want(Scope{All: true}), NewState(), Options{})
	var order []string
	for _, e := range ops.SetEntries {
		order = append(order, e.Prefix.String())
	}
	want := []string{"10.0.0.9/32", "10.42.9.0/24", "10.0.0.2/32", "10.42.2.0/24"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("order of entries (-want +got):\n%s", diff)
	}
	if n := ops.LocalEntries(); n != 2 {
		t.Errorf("%d local entries, want 2", n)
	}
	if n := (Ops{SetEntries: ops.SetEntries[:2]}).LocalEntries(); n != 2 {
		t.Errorf("%d local entries of two local ones", n)
	}
}

func TestOpsAsText(t *testing.T) {
	self := node("n1", 1, 0)
	world := NewWorld(cluster.SourceDirectory, false)
	n2, n2New := node("n2", 2, 0), node("n2", 7, 1)
	world.Apply(Change{Self: &self}, Change{Upsert: &n2})
	have := world.Want(Scope{All: true})
	world.Changed()
	world.Apply(Change{Upsert: &n2New}) // it lost its disk and made a new key
	got := Diff(world.Want(world.Changed()), have, Options{Prune: true}).String()
	want := fmt.Sprintf(`peer %[1]s set: default/n2 at 10.0.0.2:51880
peer %[1]s gets 10.0.0.2/32
peer %[1]s gets 10.42.2.0/24
peer %[1]s gets %[3]s
nobody gets %[4]s
peer %[2]s removed
`, publicKey(7).Short(), publicKey(2).Short(), ProbePrefix(publicKey(7)), ProbePrefix(publicKey(2)))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a new key of n2 (-want +got):\n%s", diff)
	}
}
