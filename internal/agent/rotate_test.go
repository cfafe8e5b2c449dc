package agent

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warren/internal/cluster"
	"warren/internal/config"
	"warren/internal/plan"
	"warren/internal/probe"
)

// said is what has come by a channel; nothing: it never answered.
type said struct{ answered, encrypting bool }

var (
	answered = said{answered: true}
	encrypts = said{answered: true, encrypting: true}
)

// rotating returns the agent of n1, which has keys of the epochs 1 and 2, with n2, whose keys are of the given
// epochs. heard has what came by each slot.
func rotating(t *testing.T, peerEpochs []uint32, heard map[plan.Slot]said) *agent {
	t.Helper()
	self, n2 := record("n1", "10.0.0.1", 1), record("n2", "10.0.0.2", 21)
	self.Keys = append(self.Keys, cluster.Key{Public: cluster.PublicKey{2}, Epoch: 2, Port: cluster.DefaultPort + 1})
	n2.Prefixes, n2.Keys = []netip.Prefix{netip.MustParsePrefix("10.42.2.0/24")}, nil
	for _, epoch := range peerEpochs {
		n2.Keys = append(n2.Keys, cluster.Key{Public: cluster.PublicKey{20 + byte(epoch)}, Epoch: epoch, Port: plan.SlotOf(epoch, 1).Port(cluster.DefaultPort)})
	}
	a := &agent{world: plan.NewWorld(cluster.SourceDirectory, false), probing: newProbing(), Options: Options{Config: config.Default()}}
	for _, key := range self.Keys {
		a.keys = append(a.keys, ownKey{public: key.Public, epoch: key.Epoch})
	}
	a.Config.MTU = 1440
	a.world.Apply(plan.Change{Self: &self}, plan.Change{Upsert: &n2})
	for slot := range plan.Slot(plan.Slots) {
		for key, peer := range a.world.Routes().Peers {
			if slot.Holds(peer.Epoch) {
				a.probing.peers[channel{slot, key}] = &probed{Peer: peerThatSaid(heard[slot]), node: peer.Node}
			}
		}
	}
	return a
}

// peerThatSaid is in permissive mode, as this node is.
func peerThatSaid(s said) *probe.Peer {
	now := monotonic()
	peer := probe.New(now, probe.Options{Mode: cluster.ModePermissive})
	request := peer.Tick(now)[0].Message
	if s.answered {
		peer.Reply(now+time.Millisecond, probe.Message{
			Kind: probe.Reply, Nonce: request.Nonce, Size: request.Size, Stance: probe.Stance{Encrypting: s.encrypting, Mode: cluster.ModePermissive},
		})
	}
	return peer
}

func TestChannelInUse(t *testing.T) {
	for _, test := range []struct {
		name   string
		epochs []uint32 // of the peer's keys
		heard  map[plan.Slot]said
		slot   plan.Slot
		send   bool
	}{
		{"nothing has answered: the newest keys, and nothing is sent", []uint32{1, 2}, nil, 3, false},
		{"only the old keys answer", []uint32{1, 2}, map[plan.Slot]said{0: answered}, 0, true},
		{"this node's new key answers", []uint32{1}, map[plan.Slot]said{0: answered, 1: answered}, 1, true},
		{"the peer's new key answers", []uint32{1, 2}, map[plan.Slot]said{0: answered, 2: answered}, 2, true},
		{"both new keys answer, each with the other's old one: the peer's counts", []uint32{1, 2}, map[plan.Slot]said{0: answered, 1: answered, 2: answered}, 2, true},
		{"all answer", []uint32{1, 2}, map[plan.Slot]said{0: answered, 1: answered, 2: answered, 3: answered}, 3, true},
		{"the peer's key is of an even epoch", []uint32{4}, map[plan.Slot]said{2: answered}, 2, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := rotating(t, test.epochs, test.heard)
			paths := map[cluster.PublicKey]plan.Path{}
			a.decide(cluster.NodeID{Cluster: cluster.DefaultCluster, Name: "n2"}, monotonic(), paths)
			a.world.Apply(plan.Change{Paths: paths})
			for prefix, entry := range a.world.WantEntries(plan.Scope{All: true}).Entries {
				if entry.HasPair && (entry.Slot != test.slot || entry.Send != test.send) {
					t.Errorf("%s: %s, want slot %d, send %t", prefix, entry, test.slot, test.send)
				}
			}
			sends := 0
			for c, kernel := range a.probing.applied {
				if kernel.Sends {
					sends++
				}
				if kernel.Sends != (test.send && c.slot == test.slot) {
					t.Errorf("the peer is told in slot %d that everything is sent by it: %t", c.slot, kernel.Sends)
				}
			}
			if (sends == 1) != test.send {
				t.Errorf("%d channels say that everything is sent by them", sends)
			}
		})
	}
}

func TestKeyUses(t *testing.T) {
	for _, test := range []struct {
		name   string
		epochs []uint32
		heard  map[plan.Slot]said
		want   plan.KeyUse
	}{
		{"the peer has answered by neither key", []uint32{1}, nil, plan.KeyUse{Receives: true}},
		{"it sends by the old key", []uint32{1}, map[plan.Slot]said{0: encrypts}, plan.KeyUse{Sends: true, Receives: true}},
		{"it answers through the new key, and sends by the old one", []uint32{1}, map[plan.Slot]said{0: encrypts, 1: answered}, plan.KeyUse{Answers: true, Receives: true}},
		{"it sends by the new key, and has said so there first", []uint32{1}, map[plan.Slot]said{0: encrypts, 1: encrypts}, plan.KeyUse{Answers: true}},
		{"it sends by the new key", []uint32{1}, map[plan.Slot]said{0: answered, 1: encrypts}, plan.KeyUse{Answers: true}},
		{"it never knew the old key", []uint32{1}, map[plan.Slot]said{1: encrypts}, plan.KeyUse{Answers: true}},
		{"it has said nothing about the old key", []uint32{1}, map[plan.Slot]said{1: answered}, plan.KeyUse{Answers: true, Receives: true}},
		{"it sends nothing, as in observe mode", []uint32{1}, map[plan.Slot]said{0: answered, 1: answered}, plan.KeyUse{Answers: true}},
		{"its key changes too, and it sends to the new one by its old", []uint32{1, 2}, map[plan.Slot]said{0: answered, 1: encrypts, 2: answered, 3: answered}, plan.KeyUse{Answers: true}},
		{"its key changes too, and it sends to the old one by its new", []uint32{1, 2}, map[plan.Slot]said{0: answered, 1: answered, 2: encrypts, 3: answered}, plan.KeyUse{Answers: true, Receives: true}},
		{"its new key does not answer this node's new one", []uint32{1, 2}, map[plan.Slot]said{0: answered, 1: answered, 2: encrypts}, plan.KeyUse{Answers: true, Sends: true, Receives: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := rotating(t, test.epochs, test.heard)
			n2 := cluster.NodeID{Cluster: cluster.DefaultCluster, Name: "n2"}
			paths := map[cluster.PublicKey]plan.Path{}
			a.decide(n2, monotonic(), paths)
			a.world.Apply(plan.Change{Paths: paths})
			test.want.Node = n2
			if diff := cmp.Diff([]plan.KeyUse{test.want}, a.keyUses()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
