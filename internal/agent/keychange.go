package agent

import (
	"time"

	"warren/internal/cluster"
	"warren/internal/plan"
	"warren/internal/probe"
)

// releaseKeys lets nodes change to a key that nobody announced once it answers through the tunnel and the
// old one does not: a machine that lost its disk. As long as both answer there are two machines.
func (a *agent) releaseKeys(now time.Duration) {
	for _, record := range a.world.Admission().Candidates {
		fresh, _ := record.CurrentKey()
		old, known := a.keyOf(record.ID)
		if !known || !a.answers(fresh.Public, now) || !a.silent(old, fresh.Public, now) {
			continue
		}
		a.Log.Warn("a node's key has changed without announcement; the new one answers, and the old one does not",
			"node", record.ID, "old_key", old, "public_key", fresh.Public)
		a.keyChanges++
		a.apply(plan.Change{Release: &plan.KeyRelease{Node: record.ID, Key: fresh.Public}})
	}
}

// keyOf returns the key with which a node is admitted.
func (a *agent) keyOf(id cluster.NodeID) (cluster.PublicKey, bool) {
	for _, peer := range a.world.Admission().Peers {
		if peer.ID == id {
			key, ok := peer.CurrentKey()
			return key.Public, ok
		}
	}
	return cluster.PublicKey{}, false
}

func (a *agent) answers(key cluster.PublicKey, now time.Duration) bool {
	peer, known := a.probing.peers[key]
	return known && peer.State(now).Phase == probe.Confirmed
}

// silentAfter is how long a peer that is asked at short intervals may take to answer: an old key because there is a new
// one, or a peer of a node that leaves.
const silentAfter = 2 * time.Second

// silent reports whether the old key has not answered since it was asked because of the new one.
func (a *agent) silent(old, fresh cluster.PublicKey, now time.Duration) bool {
	peer, known := a.probing.peers[old]
	since, asked := a.probing.doubted[fresh]
	return known && asked && now-since >= silentAfter && peer.State(now).Replied < since
}

// askAgain has the present keys of nodes with a held one asked at once.
func (a *agent) askAgain(now time.Duration) {
	for _, record := range a.world.Admission().Candidates {
		fresh, _ := record.CurrentKey()
		old, _ := a.keyOf(record.ID)
		_, asked := a.probing.doubted[fresh.Public]
		if !asked && a.probing.do(old, func(peer *probe.Peer) { peer.Ask(now) }) {
			a.probing.doubted[fresh.Public] = now
		}
	}
}
