package agent

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warren/internal/cluster"
	"warren/internal/config"
	"warren/internal/netdev"
	"warren/internal/plan"
	"warren/internal/probe"
)

// keeper is the agent of n1 with n2 as a peer: held back keys, no drivers, and a disk.
func keeper(t *testing.T, n2 cluster.Node) *agent {
	t.Helper()
	c := config.Default()
	c.StateDir, c.MTU = t.TempDir(), 1440
	self := record("n1", "10.0.0.1", 1)
	a := pureAgent(c, self)
	a.world = plan.NewWorld(cluster.SourceDirectory, true)
	a.synced, a.probing.adopted = true, map[channel]plan.Path{}
	a.view.underlays = []netdev.Link{{Index: 2, MTU: 1500}}
	a.keys = []ownKey{{public: self.Keys[0].Public, epoch: 1}}
	a.tunnels[0] = &tunnel{key: a.keys[0]}
	a.apply(plan.Change{Self: &self}, plan.Change{Upsert: &n2})
	a.endRound(t)
	return a
}

// endRound does what a round does that concerns no driver, when what the peers said last has come into force.
func (a *agent) endRound(t *testing.T) {
	t.Helper()
	if err := a.saveMemory(context.Background()); err != nil {
		t.Fatal(err)
	}
	now := monotonic() + 2*time.Second
	a.confirmApplied(now)
	a.followPeers(now)
}

// confirm has a peer answer through the tunnel, and that count.
func (a *agent) confirm(key byte) {
	c := channel{0, cluster.PublicKey{key}}
	a.probing.peers[c].Peer = peerThatSaid(encrypts)
	a.probing.touched[c] = true
	a.settle(a.probing.settled + time.Hour)
}

// sends tells which prefixes the datapath is to encrypt to, and by which key.
func (a *agent) sends() map[string]byte {
	sends := map[string]byte{}
	for prefix, entry := range a.world.WantEntries(plan.Scope{All: true}).Entries {
		if entry.Send {
			sends[prefix.String()] = a.world.Routes().ByPair[cluster.Pair{Endpoint: entry.Endpoint, Key: entry.Key}][0]
		}
	}
	return sends
}

// TestReleasedKeyIsEncryptedTo: a node that lost its disk is encrypted to by its old key or by its new one and never not at
// all, however short ago the snapshot was written; which is no more than once a second.
func TestReleasedKeyIsEncryptedTo(t *testing.T) {
	a := keeper(t, record("n2", "10.0.0.2", 21))
	a.confirm(21)
	rebuilt := record("n2", "10.0.0.2", 22)
	a.apply(plan.Change{Upsert: &rebuilt})
	a.endRound(t)
	if diff := cmp.Diff(map[string]byte{"10.0.0.2/32": 21}, a.sends()); diff != "" {
		t.Fatalf("while both keys are asked (-want +got):\n%s", diff)
	}
	a.probing.doubted[cluster.PublicKey{22}] -= 2 * silentAfter
	a.probing.peers[channel{0, cluster.PublicKey{21}}].Peer = peerThatSaid(said{})
	a.confirm(22)
	a.memory.saved = time.Now()
	a.releaseKeys(monotonic())
	for _, when := range []string{"with the key", "after a round", "after another one"} {
		if diff := cmp.Diff(map[string]byte{"10.0.0.2/32": 22}, a.sends()); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", when, diff)
		}
		a.endRound(t)
		a.settle(a.probing.settled + time.Hour)
	}
}

// TestMovedPeerIsEncryptedTo: a peer that is reached at another address is asked there, and what is said to it is encrypted
// meanwhile; so is what it says still expected to be.
func TestMovedPeerIsEncryptedTo(t *testing.T) {
	n2 := record("n2", "10.0.0.2", 21)
	n2.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.42.2.0/24")}
	a := keeper(t, n2)
	c := channel{0, cluster.PublicKey{21}}
	a.confirm(21)
	before := a.probing.peers[c]
	n2.Addresses = []netip.Addr{netip.MustParseAddr("10.0.0.22")}
	a.apply(plan.Change{Upsert: &n2})
	a.endRound(t)
	a.settle(a.probing.settled + time.Hour)
	if a.probing.peers[c] == before {
		t.Error("what is known of the path is what was known of the old one")
	}
	if diff := cmp.Diff(map[string]byte{"10.0.0.22/32": 21, "10.42.2.0/24": 21}, a.sends()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !a.world.Routes().Paths[c.peer].Enforce {
		t.Error("clear packets from it are accepted again")
	}
}

// TestRebuiltNodeIsFoundSilent: a state of the old key that begins after, or when, it was asked because of the new one is no
// answer of it, or the node would be sent packets for ever that it cannot read.
func TestRebuiltNodeIsFoundSilent(t *testing.T) {
	for _, test := range []struct {
		name  string
		old   probe.Options
		heard bool
		want  bool
	}{
		{"never answered", probe.Options{}, false, true},
		{"answered an earlier agent, or at another address", probe.Options{Kernel: probe.Kernel{Sends: true}}, false, true},
		{"answered since", probe.Options{}, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := keeper(t, record("n2", "10.0.0.2", 21))
			now := monotonic()
			a.probing.doubted[cluster.PublicKey{22}] = now
			old := probe.New(now, test.old)
			if test.heard {
				old = peerThatSaid(answered)
			}
			a.probing.peers[channel{0, cluster.PublicKey{21}}].Peer = old
			if got := a.silent(cluster.PublicKey{21}, cluster.PublicKey{22}, now+2*silentAfter); got != test.want {
				t.Errorf("silent: %t", got)
			}
		})
	}
}

// TestKeyReleasedBeforeSync: until discovery has said everything the disk is not written, and the new key has to be asked
// and encrypted to without it.
func TestKeyReleasedBeforeSync(t *testing.T) {
	a := keeper(t, record("n2", "10.0.0.2", 21))
	a.confirm(21)
	a.synced = false
	rebuilt := record("n2", "10.0.0.2", 22)
	a.apply(plan.Change{Upsert: &rebuilt})
	a.endRound(t)
	a.confirm(22)
	a.release(rebuilt.ID, rebuilt.Keys[0].Public, monotonic())
	for range 3 {
		if diff := cmp.Diff(map[string]byte{"10.0.0.2/32": 22}, a.sends()); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		a.endRound(t)
		a.synced = true // the disk is written in the next round alone
		a.settle(a.probing.settled + time.Hour)
	}
}

// TestKeyOfAnother: a forged record has the key that another node had until it was rebuilt. That this node has encrypted by
// that key is no reason to let it through.
func TestKeyOfAnother(t *testing.T) {
	n2, n3 := record("n2", "10.0.0.2", 21), record("n3", "10.0.0.3", 31)
	a := keeper(t, n2)
	a.apply(plan.Change{Upsert: &n3})
	a.memory.saved = time.Time{}
	a.endRound(t)
	a.confirm(21)
	a.confirm(31)
	forged := record("n3", "10.0.0.3", 21)
	a.apply(plan.Change{Upsert: &forged})
	rebuilt := record("n2", "10.0.0.2", 22)
	a.apply(plan.Change{Upsert: &rebuilt})
	a.endRound(t)
	a.confirm(22)
	a.release(n2.ID, cluster.PublicKey{22}, monotonic())
	a.endRound(t)
	a.releaseKeys(monotonic() + time.Minute)
	if diff := cmp.Diff(map[string]byte{"10.0.0.2/32": 22, "10.0.0.3/32": 31}, a.sends()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAnswerOfAnother: what n2 answers by its new key, which is held, lets nobody else through who has a record with that key.
func TestAnswerOfAnother(t *testing.T) {
	n2, n3 := record("n2", "10.0.0.2", 21), record("n3", "10.0.0.3", 31)
	a := keeper(t, n2)
	rebuilt := record("n2", "10.0.0.2", 22)
	a.apply(plan.Change{Upsert: &n3}, plan.Change{Upsert: &rebuilt})
	a.memory.saved = time.Time{}
	a.endRound(t)
	a.confirm(31)
	a.confirm(22)
	a.probing.doubted[cluster.PublicKey{22}] -= 2 * silentAfter
	a.probing.peers[channel{0, cluster.PublicKey{31}}].Peer = peerThatSaid(said{})
	forged := record("n3", "10.0.0.3", 22)
	a.apply(plan.Change{Delete: &n2.ID}, plan.Change{Upsert: &forged})
	a.releaseKeys(monotonic())
	if diff := cmp.Diff(map[string]byte{"10.0.0.3/32": 31}, a.sends()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
