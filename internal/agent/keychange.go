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
		if !known || !a.answers(fresh.Public, now) || !a.silent(old, now) {
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

// silent reports whether the peer was asked and does not answer, or has not answered yet.
func (a *agent) silent(key cluster.PublicKey, now time.Duration) bool {
	peer, known := a.probing.peers[key]
	if !known {
		return false
	}
	state := peer.State(now)
	unanswered := state.Phase == probe.Configured && now-state.Since > silentAfter
	return unanswered || state.Phase == probe.Stale || state.Phase == probe.Down
}

// silentAfter is how long a peer that never answered this agent is waited for.
const silentAfter = 2 * time.Second

// askAgain has the present keys of nodes with a held one asked at once.
func (a *agent) askAgain(now time.Duration) {
	for _, record := range a.world.Admission().Candidates {
		key, _ := a.keyOf(record.ID)
		if !a.probing.doubted[key] && a.probing.do(key, func(peer *probe.Peer) { peer.Ask(now) }) {
			a.probing.doubted[key] = true
		}
	}
}
