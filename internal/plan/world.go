package plan

import (
	"maps"
	"net/netip"
	"slices"

	"warren/internal/cluster"
	"warren/internal/ipcache"
)

// World is what this node knows of the cluster: itself, the records, which of them are admitted, and
// the IPCache that follows from their facts. It remembers what has changed since it was last asked.
//
// One goroutine owns a World. Its state is a function of self, the present records, and for
// records that are refused, of what was admitted before.
type World struct {
	source    cluster.Source
	self      cluster.Node
	records   map[cluster.NodeID]cluster.Node
	admission Admission
	underlay  map[netip.Addr]uint32
	cache     *ipcache.Cache
	routes    Routes
	changed   Scope
}

// NewWorld returns a world whose records come from a source of that rank.
func NewWorld(source cluster.Source) *World {
	return &World{source: source, records: map[cluster.NodeID]cluster.Node{}, cache: ipcache.New(), routes: NewRoutes(cluster.Node{}, nil, nil)}
}

// Scope is a part of the state: what one round has to look at. The zero value is empty.
type Scope struct {
	// All is everything; the other fields do not matter then.
	All      bool
	Prefixes map[netip.Prefix]struct{}
	Peers    map[cluster.PublicKey]struct{}
}

// Empty reports whether there is nothing to look at.
func (s Scope) Empty() bool { return !s.All && len(s.Prefixes) == 0 && len(s.Peers) == 0 }

// Of returns the part of the state that is in scope.
func (s Scope) Of(state State) State {
	if s.All {
		return state
	}
	return state.Restrict(maps.Keys(s.Prefixes), maps.Keys(s.Peers))
}

// Add widens the scope by another one.
func (s *Scope) Add(other Scope) {
	s.All = s.All || other.All
	for prefix := range other.Prefixes {
		s.addPrefix(prefix)
	}
	for key := range other.Peers {
		s.addPeer(key)
	}
}

func (s *Scope) addPrefix(prefix netip.Prefix) {
	if s.Prefixes == nil {
		s.Prefixes = map[netip.Prefix]struct{}{}
	}
	s.Prefixes[prefix] = struct{}{}
}

func (s *Scope) addPeer(key cluster.PublicKey) {
	if s.Peers == nil {
		s.Peers = map[cluster.PublicKey]struct{}{}
	}
	s.Peers[key] = struct{}{}
}

// Change is one piece of news; exactly one of its fields is set.
type Change struct {
	// Upsert is a record that is present from now on, in this form.
	Upsert *cluster.Node
	// Delete is the ID of a record that is gone.
	Delete *cluster.NodeID
	// Self is this node's own record.
	Self *cluster.Node
	// Underlay has the device towards tunnel endpoints that are not reached by the primary one.
	Underlay map[netip.Addr]uint32
}

// Apply takes in news. Admission is judged once for all of them.
func (w *World) Apply(changes ...Change) {
	before := w.self
	for _, change := range changes {
		switch {
		case change.Upsert != nil:
			w.records[change.Upsert.ID] = *change.Upsert
		case change.Delete != nil:
			delete(w.records, *change.Delete)
		case change.Self != nil:
			w.self = *change.Self
		case change.Underlay != nil && !maps.Equal(change.Underlay, w.underlay):
			w.underlay = change.Underlay
			w.changed.All = true
		}
	}
	if !equalNodes(before, w.self) {
		w.note(w.cache.Replace(cluster.SourceLocal, Resource(w.self.ID), LocalFacts(w.self)))
	}
	w.admit(!equalNodes(before, w.self))
}

// admit judges the records anew and states the facts of those whose verdict or content changed;
// of all of them when it was this node that changed, since that may change how they are reached.
func (w *World) admit(selfChanged bool) {
	old := w.admission
	w.admission = Admit(w.self, slices.Collect(maps.Values(w.records)), old.Peers)
	stated := statements(old)
	for id, now := range statements(w.admission) {
		if before, ok := stated[id]; !ok || selfChanged || before.peer != now.peer || !equalNodes(before.node, now.node) {
			w.note(w.cache.Replace(w.source, Resource(id), w.factsOf(now)))
		}
		delete(stated, id)
	}
	for id := range stated {
		w.note(w.cache.DeleteResource(w.source, Resource(id)))
	}
	w.reroute()
}

// statement is a record and whether it speaks as a peer.
type statement struct {
	node cluster.Node
	peer bool
}

func statements(a Admission) map[cluster.NodeID]statement {
	all := map[cluster.NodeID]statement{}
	for _, node := range a.Unreachable {
		all[node.ID] = statement{node, false}
	}
	for _, node := range a.Peers {
		all[node.ID] = statement{node, true}
	}
	return all
}

func (w *World) factsOf(s statement) []cluster.Fact {
	if s.peer {
		return PeerFacts(w.self, s.node, w.source)
	}
	return UnreachableFacts(s.node, w.source)
}

// reroute follows the peers. A pair that leads to another key than before concerns prefixes that no
// delta names, so everything is looked at.
func (w *World) reroute() {
	old := w.routes
	w.routes = NewRoutes(w.self, w.admission.Peers, w.underlay)
	for pair, key := range w.routes.ByPair {
		if before, ok := old.ByPair[pair]; !ok || before != key {
			w.changed.All = w.changed.All || ok
			w.changed.addPeer(key)
		}
	}
	for key, peer := range w.routes.Peers {
		if old.Peers[key] != peer {
			w.changed.addPeer(key)
		}
	}
	for key := range old.Peers {
		if _, ok := w.routes.Peers[key]; !ok {
			w.changed.addPeer(key)
		}
	}
}

func (w *World) note(deltas []ipcache.Delta) {
	for _, delta := range deltas {
		w.changed.addPrefix(delta.Prefix)
	}
}

// Changed returns what changed since it was last called.
func (w *World) Changed() Scope {
	scope := w.changed
	w.changed = Scope{}
	return scope
}

// Want returns the state that this node must have, as far as it is in scope.
func (w *World) Want(scope Scope) State {
	if scope.All {
		return Build(w.routes, w.cache.All())
	}
	want := Build(Routes{ByPair: w.routes.ByPair, Underlay: w.routes.Underlay}, func(yield func(netip.Prefix, ipcache.Entry) bool) {
		for prefix := range scope.Prefixes {
			if entry, ok := w.cache.Get(prefix); ok && !yield(prefix, entry) {
				return
			}
		}
	})
	for key := range scope.Peers {
		if peer, ok := w.routes.Peers[key]; ok {
			want.Peers[key] = peer
		}
	}
	return want
}

// Self returns this node's own record.
func (w *World) Self() cluster.Node { return w.self }

// Cache returns the IPCache, for reading.
func (w *World) Cache() *ipcache.Cache { return w.cache }

// Admission returns which records are peers, and which are refused and why.
func (w *World) Admission() Admission { return w.admission }

// Records returns the present records in ID order, refused ones included.
func (w *World) Records() []cluster.Node { return sortedByID(slices.Collect(maps.Values(w.records))) }

// Routes returns how the peers are reached.
func (w *World) Routes() Routes { return w.routes }

// Endpoint returns the endpoint as Diff should see it: WireGuard may have roamed to another address of
// the same node, with the right port, and is left there; anything else is not the node's.
func (w *World) Endpoint(key cluster.PublicKey, actual netip.AddrPort) netip.AddrPort {
	want, ok := w.routes.Peers[key]
	if !ok || actual.Port() != want.Endpoint.Port() {
		return actual
	}
	i, found := slices.BinarySearchFunc(w.admission.Peers, want.Node, func(n cluster.Node, id cluster.NodeID) int { return n.ID.Compare(id) })
	if found && slices.Contains(w.admission.Peers[i].Addresses, actual.Addr()) {
		return want.Endpoint
	}
	return actual
}

func equalNodes(a, b cluster.Node) bool {
	return a.ID == b.ID && a.Issued.Equal(b.Issued) && a.Version == b.Version &&
		slices.Equal(a.Addresses, b.Addresses) && slices.Equal(a.Prefixes, b.Prefixes) &&
		slices.Equal(a.Keys, b.Keys) && slices.Equal(a.Capabilities, b.Capabilities)
}

// SameContent reports whether two records say the same, whenever they were issued.
func SameContent(a, b cluster.Node) bool {
	a.Issued = b.Issued
	return equalNodes(a, b)
}
