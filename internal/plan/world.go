package plan

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"warren/internal/cluster"
	"warren/internal/ipcache"
)

// World is what this node knows of the cluster: itself, the records, which of them are admitted, and
// the IPCache that follows from their facts. It remembers what has changed since it was last asked.
//
// One goroutine owns a World. Its state is a function of self, the present records and statements, and
// for records that are refused, of what was admitted before.
type World struct {
	// Watch, if it is set, is given every change of the IPCache, in order.
	Watch func([]ipcache.Delta)

	source  cluster.Source
	keys    KeyPolicy
	self    cluster.Node
	records map[cluster.NodeID]*Record
	// remembered are the records of an earlier run that no present one has replaced.
	remembered map[cluster.NodeID]*Record
	admission  Admission
	voices     map[cluster.NodeID]voice // what the cache holds of records
	underlay   map[netip.Addr]uint32
	paths      map[cluster.PublicKey]Path
	cache      *ipcache.Cache
	routes     Routes
	changed    Scope
	moved      map[cluster.PublicKey]bool // peers whose path is another one
}

// NewWorld returns a world whose records come from a source of that rank. Keys that nobody announced are
// held back if holdKeys is set.
func NewWorld(source cluster.Source, holdKeys bool) *World {
	return &World{
		source: source, keys: KeyPolicy{Hold: holdKeys, Released: map[cluster.NodeID]cluster.PublicKey{}}, records: map[cluster.NodeID]*Record{}, remembered: map[cluster.NodeID]*Record{},
		paths: map[cluster.PublicKey]Path{}, moved: map[cluster.PublicKey]bool{},
		cache: ipcache.New(), routes: NewRoutes(&cluster.Node{}, nil, nil),
	}
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
	s.addPrefix(ProbePrefix(key))
}

// Change is one piece of news; exactly one of its fields is set.
type Change struct {
	// Upsert is a record that is present from now on, in this form.
	Upsert *cluster.Node
	// Delete is the ID of a record that is gone, present or remembered.
	Delete *cluster.NodeID
	// Self is this node's own record.
	Self *cluster.Node
	// Underlay has the device towards tunnel endpoints that are not reached by the primary one.
	Underlay map[netip.Addr]uint32
	// Paths are what is known from now on of the ways to these peers; those of others stay.
	Paths map[cluster.PublicKey]Path
	// Release lets a node change to that key; see KeyPolicy.
	Release *KeyRelease
	// Statement is all that a resource other than a record says.
	Statement *Statement
	// Remember are the peers of an earlier run. Until Delete they count as present, with the
	// weakest rank, as long as no present record has the same ID.
	Remember []cluster.Node
	// Synced says that all sources have delivered everything once: what an earlier run knew of API
	// servers goes. Which Remembered nodes go is up to the caller.
	Synced bool
}

// Statement is what a resource says about addresses, such as the list of API servers.
type Statement struct {
	Source   cluster.Source
	Resource string
	Facts    []cluster.Fact
}

// KeyRelease is a key that a node may change to.
type KeyRelease struct {
	Node cluster.NodeID
	Key  cluster.PublicKey
}

// Apply takes in news. Admission is judged once for all of them.
//
// Paths that are known already are no news: they come with every probe, and a judgement looks at all records.
func (w *World) Apply(changes ...Change) {
	if !slices.ContainsFunc(changes, w.isNews) {
		return
	}
	before := w.self
	for _, change := range changes {
		w.take(change)
	}
	selfChanged := !equalNodes(&before, &w.self)
	if selfChanged {
		w.note(w.cache.Replace(cluster.SourceLocal, Resource(w.self.ID), LocalFacts(&w.self)))
	}
	w.admit(selfChanged)
}

// isNews reports whether a change may change anything.
func (w *World) isNews(change Change) bool {
	for key, path := range change.Paths {
		if w.paths[key] != path {
			return true
		}
	}
	return change.Paths == nil
}

func (w *World) take(change Change) {
	switch {
	case change.Upsert != nil:
		w.records[change.Upsert.ID] = NewRecord(*change.Upsert)
		delete(w.remembered, change.Upsert.ID)
	case change.Delete != nil:
		delete(w.records, *change.Delete)
		delete(w.remembered, *change.Delete)
	case change.Self != nil:
		w.self = *change.Self
	case change.Underlay != nil && !maps.Equal(change.Underlay, w.underlay):
		w.underlay = change.Underlay
		w.changed.All = true
	case change.Statement != nil:
		w.note(w.cache.Replace(change.Statement.Source, change.Statement.Resource, change.Statement.Facts))
	case change.Release != nil:
		w.keys.Released[change.Release.Node] = change.Release.Key
	case change.Synced:
		w.note(w.cache.DeleteResource(cluster.SourceRestored, APIServers))
	}
	for key, path := range change.Paths {
		if w.paths[key] != path {
			w.paths[key], w.moved[key] = path, true
		}
	}
	for _, node := range change.Remember {
		if _, present := w.records[node.ID]; !present {
			w.remembered[node.ID] = NewRecord(node)
		}
	}
}

// admit judges the records anew and states the facts of those whose verdict or content changed;
// of all of them when it was this node that changed, since that may change how they are reached.
func (w *World) admit(selfChanged bool) {
	if len(w.self.Addresses) == 0 {
		return // whether a peer can be reached is not known yet
	}
	memories := slices.Collect(maps.Values(w.remembered))
	records := slices.Concat(slices.Collect(maps.Values(w.records)), memories)
	w.admission = Admit(w.self, records, slices.Concat(w.admission.Peers, memories), w.keys)
	next := w.nextVoices()
	for id, now := range next {
		if before, spoke := w.voices[id]; !spoke || selfChanged || !before.equal(now) {
			w.note(w.cache.Replace(now.source, Resource(id), w.factsOf(now)))
		}
	}
	// After what is new has been said, so that what both say is never gone in between.
	for id, before := range w.voices {
		if now, speaks := next[id]; !speaks || now.source != before.source {
			w.note(w.cache.DeleteResource(before.source, Resource(id)))
		}
	}
	w.voices = next
	w.reroute()
}

// voice is a record that speaks: how strongly, and as a peer with which key.
type voice struct {
	node   *cluster.Node
	epoch  uint32 // of the key in use; 0: it is no peer
	source cluster.Source
}

func (v voice) equal(other voice) bool {
	return v.epoch == other.epoch && v.source == other.source && equalNodes(v.node, other.node)
}

func (w *World) nextVoices() map[cluster.NodeID]voice {
	all := make(map[cluster.NodeID]voice, len(w.voices))
	speak := func(records []*Record, peer bool) {
		for _, record := range records {
			source := w.source
			if _, remembered := w.remembered[record.ID]; remembered {
				source = cluster.SourceRestored
			}
			all[record.ID] = voice{&record.Node, w.epochInUse(record, peer), source}
		}
	}
	speak(w.admission.Unreachable, false)
	speak(w.admission.Peers, true)
	return all
}

func (w *World) epochInUse(record *Record, peer bool) uint32 {
	if !peer {
		return 0
	}
	key, _ := keyInUse(&record.Node, w.paths)
	return key.Epoch
}

func (w *World) factsOf(v voice) []cluster.Fact { return PeerFacts(&w.self, v.node, v.source, v.epoch) }

// reroute follows the peers. A pair that leads to another key than before concerns prefixes that no
// delta names, so everything is looked at; and so it is when a node begins or ends to have two keys, since
// all its prefixes get, or lose, a second owner.
func (w *World) reroute() {
	old := w.routes
	w.forgetPaths()
	w.routes = NewRoutes(&w.self, w.admission.Peers, w.paths)
	w.routes.addCandidates(&w.self, w.admission.Candidates)
	w.routes.Underlay = w.underlay
	w.changed.All = w.changed.All || !maps.Equal(w.routes.Twins, old.Twins)
	for pair, key := range w.routes.ByPair {
		if before, ok := old.ByPair[pair]; !ok || before != key {
			w.followPair(before, key)
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
			delete(w.paths, key)
		}
	}
}

// forgetPaths drops what is known of the ways to keys that belong to another node than before: it is not known of that one.
func (w *World) forgetPaths() {
	for _, record := range slices.Concat(w.admission.Peers, w.admission.Candidates) {
		for _, key := range LiveKeys(&record.Node) {
			if before, known := w.routes.Peers[key.Public]; known && before.Node != record.ID {
				delete(w.paths, key.Public)
			}
		}
	}
}

// followPair notes that a pair leads to another key than before, if it led to one.
func (w *World) followPair(before, key cluster.PublicKey) {
	w.changed.addPeer(key)
	if twin, ok := w.routes.Twins[key]; ok && twin == before {
		w.moved[key] = true
		return
	}
	w.changed.All = w.changed.All || before != cluster.PublicKey{}
}

func (w *World) note(deltas []ipcache.Delta) {
	for _, delta := range deltas {
		w.changed.addPrefix(delta.Prefix)
	}
	if w.Watch != nil && len(deltas) > 0 {
		w.Watch(deltas)
	}
}

// Changed returns what changed since it was last called.
func (w *World) Changed() Scope {
	w.followPaths()
	scope := w.changed
	w.changed = Scope{}
	return scope
}

// followPaths adds the prefixes behind peers whose path has changed. It looks at every entry, so
// paths should change in few steps.
func (w *World) followPaths() {
	if len(w.moved) == 0 {
		return
	}
	for prefix, entry := range w.cache.All() {
		if key, ok := w.routes.Peer(entry); ok && w.moved[key] {
			w.changed.addPrefix(prefix)
		}
	}
	clear(w.moved)
}

// WantEntries returns the entries that the datapath must have, as far as they are in scope.
func (w *World) WantEntries(scope Scope) State {
	entries, size := w.entries(scope)
	return BuildEntries(w.routes, entries, size)
}

// Lookup returns what the datapath should find for an address; false is nothing, as for what is not in the cluster.
func (w *World) Lookup(addr netip.Addr) (Entry, bool) {
	_, entry, ok := w.cache.Lookup(addr)
	if !ok || outside(entry) {
		return Entry{}, false
	}
	return w.routes.Entry(entry), true
}

// WantTunnel returns what the slot's device must have, as far as it is in scope.
func (w *World) WantTunnel(scope Scope, slot Slot) State {
	peers := maps.Keys(scope.Peers)
	if scope.All {
		peers = maps.Keys(w.routes.Peers)
	}
	entries, size := w.entries(scope)
	return BuildTunnel(w.routes, slot, peers, entries, size)
}

// entries are those of the IPCache that are in scope, about so many.
func (w *World) entries(scope Scope) (entries iter.Seq2[netip.Prefix, ipcache.Entry], size int) {
	if scope.All {
		return w.cache.All(), w.cache.Len()
	}
	return func(yield func(netip.Prefix, ipcache.Entry) bool) {
		for prefix := range scope.Prefixes {
			if entry, ok := w.cache.Get(prefix); ok && !yield(prefix, entry) {
				return
			}
		}
	}, len(scope.Prefixes)
}

// Slots returns, in order, the slots that this node needs: for each of its keys those in which there is a
// peer, and at least one.
func (w *World) Slots() []Slot {
	var used [Slots]bool
	for _, own := range LiveKeys(&w.self) {
		used[SlotOf(own.Epoch, 1)] = used[SlotOf(own.Epoch, 1)] || len(w.routes.Peers) == 0
		for _, peer := range w.routes.Peers {
			used[SlotOf(own.Epoch, peer.Epoch)] = true
		}
	}
	var slots []Slot
	for slot := range Slot(Slots) {
		if used[slot] {
			slots = append(slots, slot)
		}
	}
	return slots
}

// KeyInUse returns the key by which an admitted node is reached.
func (w *World) KeyInUse(id cluster.NodeID) (key cluster.Key, ok bool) {
	if record, known := w.peer(id); known {
		return keyInUse(&record.Node, w.paths)
	}
	return cluster.Key{}, false
}

// PeerKeys returns the live keys of an admitted node, newest first.
func (w *World) PeerKeys(id cluster.NodeID) []cluster.Key {
	if record, known := w.peer(id); known {
		return LiveKeys(&record.Node)
	}
	return nil
}

// peer finds an admitted record.
func (w *World) peer(id cluster.NodeID) (*Record, bool) {
	i, found := slices.BinarySearchFunc(w.admission.Peers, id, func(r *Record, id cluster.NodeID) int { return r.ID.Compare(id) })
	if !found {
		return nil, false
	}
	return w.admission.Peers[i], true
}

// Self returns this node's own record.
func (w *World) Self() cluster.Node { return w.self }

// Cache returns the IPCache, for reading.
func (w *World) Cache() *ipcache.Cache { return w.cache }

// Admission returns which records are peers, and which are refused and why.
func (w *World) Admission() Admission { return w.admission }

// Records returns the records in ID order, refused and remembered ones included.
func (w *World) Records() []cluster.Node {
	nodes := make([]cluster.Node, 0, len(w.records)+len(w.remembered))
	for _, record := range sortedByID(slices.AppendSeq(slices.Collect(maps.Values(w.records)), maps.Values(w.remembered))) {
		nodes = append(nodes, record.Node)
	}
	return nodes
}

// Leaving reports whether the present record of a node says that it is about to leave.
func (w *World) Leaving(id cluster.NodeID) bool {
	record, ok := w.records[id]
	return ok && record.Leaving()
}

// Remembered returns the nodes of an earlier run, in order, that have no present record.
func (w *World) Remembered() []cluster.NodeID {
	return slices.SortedFunc(maps.Keys(w.remembered), cluster.NodeID.Compare)
}

// Routes returns how the peers are reached.
func (w *World) Routes() Routes { return w.routes }

// Endpoint returns the endpoint as Diff should see it: WireGuard may have roamed to another address of
// the same node, with the slot's port, and is left there; anything else is not the node's.
func (w *World) Endpoint(slot Slot, key cluster.PublicKey, actual netip.AddrPort) netip.AddrPort {
	want, ok := w.routes.Peers[key]
	if want = want.In(slot); !ok || actual.Port() != want.Endpoint.Port() {
		return actual
	}
	if record, found := w.peer(want.Node); found && slices.Contains(record.Addresses, actual.Addr()) {
		return want.Endpoint
	}
	return actual
}

func equalNodes(a, b *cluster.Node) bool {
	return a == b || a.Issued.Equal(b.Issued) && SameContent(a, b)
}

// SameContent reports whether two records say the same, whenever they were issued.
func SameContent(a, b *cluster.Node) bool {
	return a == b || a.ID == b.ID && a.Version == b.Version &&
		slices.Equal(a.Addresses, b.Addresses) && slices.Equal(a.Prefixes, b.Prefixes) &&
		slices.Equal(a.Keys, b.Keys) && slices.Equal(a.Capabilities, b.Capabilities)
}
