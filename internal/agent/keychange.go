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
		old, known := a.world.KeyInUse(record.ID)
		if !known || !a.answers(fresh.Public, now) || !a.silent(old.Public, now) {
			continue
		}
		a.Log.Warn("a node's key has changed without announcement; the new one answers, and the old one does not",
			"node", record.ID, "old_key", old.Public, "public_key", fresh.Public)
		a.keyChanges++
		a.apply(plan.Change{Release: &plan.KeyRelease{Node: record.ID, Key: fresh.Public}})
		a.probing.touch(fresh.Public)
	}
}

// answers reports whether the peer with that key answers through any device.
func (a *agent) answers(key cluster.PublicKey, now time.Duration) bool {
	for _, peer := range a.probing.channels(key) {
		if peer.State(now).Phase == probe.Confirmed {
			return true
		}
	}
	return false
}

// silent reports whether the peer was asked and does not answer, or has not answered yet.
func (a *agent) silent(key cluster.PublicKey, now time.Duration) bool {
	asked := false
	for _, peer := range a.probing.channels(key) {
		state := peer.State(now)
		unanswered := state.Phase == probe.Configured && now-state.Since > silentAfter
		if !unanswered && state.Phase != probe.Stale && state.Phase != probe.Down {
			return false
		}
		asked = true
	}
	return asked
}

// silentAfter is how long a peer that never answered this agent is waited for.
const silentAfter = 2 * time.Second

// askAgain has the present keys of nodes with a held one asked at once.
func (a *agent) askAgain(now time.Duration) {
	for _, record := range a.world.Admission().Candidates {
		key, _ := a.world.KeyInUse(record.ID)
		if a.probing.doubted[key.Public] {
			continue
		}
		for c := range a.probing.channels(key.Public) {
			a.probing.doubted[key.Public] = a.probing.do(c, func(peer *probe.Peer) { peer.Ask(now) })
		}
	}
}
