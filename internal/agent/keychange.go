package agent

import (
	"slices"
	"time"

	"warren/internal/cluster"
	"warren/internal/plan"
	"warren/internal/probe"
)

// releaseKeys lets nodes change to a key that nobody announced once it answers through the tunnel and the
// old one does not: a machine that lost its disk. As long as both answer there are two machines. A key by which this agent
// found the kernel send was let through by an earlier one, whose disk could not be written.
func (a *agent) releaseKeys(now time.Duration) {
	for _, record := range a.world.Admission().Candidates {
		fresh, _ := record.CurrentKey()
		old, known := a.world.KeyInUse(record.ID)
		if known && a.foundSending(record) {
			a.release(record.ID, fresh.Public, now)
			continue
		}
		if !known || !a.answers(record.ID, fresh.Public, now) || !a.silent(old.Public, fresh.Public, now) {
			continue
		}
		a.Log.Warn("a node's key has changed without announcement; the new one answers, and the old one does not",
			"node", record.ID, "old_key", old.Public, "public_key", fresh.Public)
		a.keyChanges++
		a.release(record.ID, fresh.Public, now)
	}
}

// foundSending reports whether the kernel sends by a key of a record that is held back.
func (a *agent) foundSending(record *plan.Record) bool {
	return slices.ContainsFunc(plan.LiveKeys(&record.Node), func(key cluster.Key) bool { return a.world.Routes().Paths[key.Public].Send })
}

// release lets a node change to a key. What was encrypted stays so: the path by the new key counts together with the key.
// What strict mode drops stays dropped: that the new key has only just been met is no reason to wait for it to encrypt.
// The disk is to have the record at once, as for whoever is encrypted to.
func (a *agent) release(node cluster.NodeID, key cluster.PublicKey, now time.Duration) {
	old, _ := a.world.KeyInUse(node)
	kernel := probe.Kernel{Enforces: a.world.Routes().Paths[old.Public].Enforce}
	for c := range a.probing.channels(key) {
		a.probing.do(c, func(peer *probe.Peer) { peer.Applied(now, kernel) })
	}
	a.apply(plan.Change{Release: &plan.KeyRelease{Node: node, Key: key}})
	a.memory.saved = time.Time{}
	paths := map[cluster.PublicKey]plan.Path{}
	a.decide(node, now, paths)
	a.apply(plan.Change{Paths: paths})
}

// answers reports whether the node answers by that key through any device. What the key's last owner answered is not its own.
func (a *agent) answers(node cluster.NodeID, key cluster.PublicKey, now time.Duration) bool {
	for _, peer := range a.probing.channels(key) {
		if peer.node == node && peer.State(now).Phase == probe.Confirmed {
			return true
		}
	}
	return false
}

// silentAfter is how long a peer that is asked at short intervals may take to answer: an old key because there is a new
// one, or a peer of a node that leaves.
const silentAfter = 2 * time.Second

// silent reports whether the old key has not answered since it was asked because of the new one. A state that began since
// then, since the agent or an address is another one, is no answer.
func (a *agent) silent(old, fresh cluster.PublicKey, now time.Duration) bool {
	since, asked := a.probing.doubted[fresh]
	for _, peer := range a.probing.channels(old) {
		if state := peer.State(now); state.Heard && state.Replied > since {
			return false
		}
	}
	return asked && now-since >= silentAfter
}

// lastReply returns when the peer with that key answered last, through any device; asked is false when it has
// not been asked.
func (a *agent) lastReply(key cluster.PublicKey, now time.Duration) (at time.Duration, asked bool) {
	for _, peer := range a.probing.channels(key) {
		at, asked = max(at, peer.State(now).Replied), true
	}
	return at, asked
}

// askAgain has the present keys of nodes with a held one asked at once.
func (a *agent) askAgain(now time.Duration) {
	for _, record := range a.world.Admission().Candidates {
		fresh, _ := record.CurrentKey()
		if _, asked := a.probing.doubted[fresh.Public]; asked {
			continue
		}
		old, _ := a.world.KeyInUse(record.ID)
		for c := range a.probing.channels(old.Public) {
			a.probing.do(c, func(peer *probe.Peer) { peer.Ask(now) })
			a.probing.doubted[fresh.Public] = now
		}
	}
}
