package plan

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warren/internal/cluster"
)

func TestSlotsOfBothEndsMeet(t *testing.T) {
	const base = 51880
	for _, test := range []struct {
		name      string
		own, peer uint32 // epochs
		slot      Slot
		device    string
		port      uint16 // own
		peerPort  uint16
	}{
		{"keys that never changed", 1, 1, 0, "warren0", 51880, 51880},
		{"the own key changes", 2, 1, 1, "warren0b", 51881, 51882},
		{"the peer's key changes", 1, 2, 2, "warren0c", 51882, 51881},
		{"both change", 2, 2, 3, "warren0d", 51883, 51883},
		{"after two changes the first slot again", 3, 5, 0, "warren0", 51880, 51880},
	} {
		t.Run(test.name, func(t *testing.T) {
			slot := SlotOf(test.own, test.peer)
			published := SlotOf(test.peer, 1).Port(base) // what the peer's record says
			if slot != test.slot || slot.Device("warren0") != test.device || slot.Port(base) != test.port || slot.PeerPort(published) != test.peerPort {
				t.Errorf("slot %d, %s, port %d to port %d", slot, slot.Device("warren0"), slot.Port(base), slot.PeerPort(published))
			}
			if there := SlotOf(test.peer, test.own).Port(base); there != test.peerPort {
				t.Errorf("the peer listens on port %d, this node sends to port %d", there, test.peerPort)
			}
			if !slot.Own(test.own) || !slot.Holds(test.peer) || slot.Own(test.own+1) || slot.Holds(test.peer+1) {
				t.Error("it holds other epochs than its own")
			}
		})
	}
}

func TestLiveKeys(t *testing.T) {
	key := func(epoch uint32) cluster.Key { return cluster.Key{Public: publicKey(byte(epoch)), Epoch: epoch} }
	for _, test := range []struct {
		name       string
		keys, want []cluster.Key
	}{
		{"no key", nil, nil},
		{"one key", []cluster.Key{key(4)}, []cluster.Key{key(4)}},
		{"two keys, the older one first", []cluster.Key{key(1), key(2)}, []cluster.Key{key(2), key(1)}},
		{"three keys: of two odd epochs the newer", []cluster.Key{key(1), key(2), key(3)}, []cluster.Key{key(3), key(2)}},
		{"two keys of odd epochs: the newer", []cluster.Key{key(1), key(3)}, []cluster.Key{key(3)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, LiveKeys(&cluster.Node{Keys: test.keys})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestRotationOfAPeer follows n2's addresses while n2 replaces its key: they belong to both keys, each in its
// own slot, as long as the record has both, and are sent to by the newest one that a path is known for.
func TestRotationOfAPeer(t *testing.T) {
	self, old := node("n1", 1, 0), node("n2", 2, 0)
	both := with(old, func(n *cluster.Node) {
		n.Keys = []cluster.Key{n.Keys[0], {Public: publicKey(8), Epoch: 2, Port: cluster.DefaultPort + 1}}
		n.Issued = n.Issued.Add(1)
	})
	fresh := with(both, func(n *cluster.Node) { n.Keys = n.Keys[1:] })
	path := func(key byte, path Path) Change {
		return Change{Paths: map[cluster.PublicKey]Path{publicKey(key): path}}
	}
	prefix := netip.MustParsePrefix("10.42.2.0/24")
	world := NewWorld(cluster.SourceDirectory, true)
	world.Apply(Change{Self: &self})
	for _, step := range []struct {
		name     string
		changes  []Change
		odd      cluster.PublicKey // owner of the prefix in slot 0; zero: nobody
		even     cluster.PublicKey // in slot 2
		key      cluster.KeyID
		slot     Slot
		slots    []Slot
		endpoint string // of the key in use
	}{
		{name: "one key", changes: []Change{{Upsert: &old}, path(2, Path{Send: true})}, odd: publicKey(2), key: 1, slots: []Slot{0}, endpoint: "10.0.0.2:51880"},
		{name: "a second one is published", changes: []Change{{Upsert: &both}}, odd: publicKey(2), even: publicKey(8), key: 1, slots: []Slot{0, 2}, endpoint: "10.0.0.2:51880"},
		{name: "it answers", changes: []Change{path(8, Path{Send: true, Slot: 2})}, odd: publicKey(2), even: publicKey(8), key: 2, slot: 2, slots: []Slot{0, 2}, endpoint: "10.0.0.2:51881"},
		{name: "the first one goes", changes: []Change{{Upsert: &fresh}}, even: publicKey(8), key: 2, slot: 2, slots: []Slot{2}, endpoint: "10.0.0.2:51881"},
	} {
		world.Apply(step.changes...)
		all := Scope{All: true}
		if got := world.WantTunnel(all, 0).AllowedIPs[prefix]; got != step.odd {
			t.Errorf("%s: in slot 0 it belongs to %s", step.name, got)
		}
		if got := world.WantTunnel(all, 2).AllowedIPs[prefix]; got != step.even {
			t.Errorf("%s: in slot 2 it belongs to %s", step.name, got)
		}
		entry := world.WantEntries(all).Entries[prefix]
		if entry.Key != step.key || entry.Slot != step.slot || !entry.Send {
			t.Errorf("%s: entry %s", step.name, entry)
		}
		if diff := cmp.Diff(step.slots, world.Slots()); diff != "" {
			t.Errorf("%s: slots (-want +got):\n%s", step.name, diff)
		}
		used, _ := world.KeyInUse(old.ID)
		if peer := world.WantTunnel(all, step.slot).Peers[used.Public]; peer.Endpoint.String() != step.endpoint {
			t.Errorf("%s: sent to %s", step.name, peer.Endpoint)
		}
	}
}

func TestSlotsOfANode(t *testing.T) {
	rotating := with(node("n1", 1, 0), func(n *cluster.Node) {
		n.Keys = []cluster.Key{n.Keys[0], {Public: publicKey(7), Epoch: 2, Port: cluster.DefaultPort + 1}}
	})
	young := with(rotating, func(n *cluster.Node) { n.Keys = n.Keys[1:] })
	n2 := node("n2", 2, 0)
	n3 := with(node("n3", 3, 0), func(n *cluster.Node) { n.Keys[0].Epoch = 4 })
	for _, test := range []struct {
		name  string
		self  cluster.Node
		peers []cluster.Node
		want  []Slot
	}{
		{"alone", node("n1", 1, 0), nil, []Slot{0}},
		{"alone, with a later key", young, nil, []Slot{1}},
		{"alone, replacing the key", rotating, nil, []Slot{0, 1}},
		{"peers of both kinds", node("n1", 1, 0), []cluster.Node{n2, n3}, []Slot{0, 2}},
		{"the other kind of peers only", node("n1", 1, 0), []cluster.Node{n3}, []Slot{2}},
		{"replacing the key among both kinds", rotating, []cluster.Node{n2, n3}, []Slot{0, 1, 2, 3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			world := NewWorld(cluster.SourceDirectory, false)
			world.Apply(Change{Self: &test.self})
			for _, peer := range test.peers {
				world.Apply(Change{Upsert: &peer})
			}
			if diff := cmp.Diff(test.want, world.Slots()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
