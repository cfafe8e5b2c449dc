package ipcache

// settle flattens what was marked since the last settle and returns what is different. It walks the
// trie in prefix order along the marks, so that its work is that of the changed prefixes and, where
// the facts of a cover changed, of those under it that this concerns.
func (c *Cache) settle() []Delta {
	if c.marked == 0 {
		return nil
	}
	s := settling{Cache: c, deltas: make([]Delta, 0, c.marked)}
	c.marked = 0
	for i := range c.trie.roots {
		c.trie.roots[i], _ = s.visit(c.trie.roots[i], 0)
	}
	return s.deltas
}

type settling struct {
	*Cache
	deltas []Delta
}

// visit settles what is at and under a node. heritage is what changed of what it inherits: markRoute,
// markTraits. It returns what stands in the node's place afterwards, and whether a record there takes
// its owner or its pair from above.
func (s *settling) visit(h handle, heritage mark) (handle, bool) {
	if h == 0 {
		return 0, false
	}
	n := s.trie.nodes.at(h)
	marks := n.marks
	n.marks = 0
	if n.record != 0 && concerned(marks&markFacts != 0, n.needs&needOwn != 0, heritage) {
		s.update(h, n)
	}
	depth := len(s.covers)
	if n.record != 0 {
		s.covers = append(s.covers, s.records.at(n.record))
	}
	heritage |= marks & (markRoute | markTraits)
	for side := range n.child {
		if !concerned(marks&(markLeft<<side) != 0, n.needs&(needLeft<<side) != 0, heritage) {
			continue
		}
		var needy bool
		n.child[side], needy = s.visit(n.child[side], heritage)
		n.setNeed(needLeft<<side, needy)
	}
	s.covers = s.covers[:depth]
	needy := n.needs != 0 // prune may free n
	return s.trie.prune(h), needy
}

// concerned reports whether a record, or a child, is one to look at: for its own marks, or for what
// changed above it.
func concerned(marked, needy bool, heritage mark) bool {
	return marked || heritage&markTraits != 0 || heritage&markRoute != 0 && needy
}

// update brings the entry of a record up to date. A record without facts goes.
func (s *settling) update(h handle, n *node) {
	r := s.records.at(n.record)
	s.noteConflict(h, r)
	n.setNeed(needOwn, s.needy(r))
	if r.facts != 0 {
		s.flattenAnew(n, r)
		return
	}
	s.emit(n, r.entry, flat{})
	s.disuse(r.entry)
	s.records.release(n.record)
	n.record = 0
}

// flattenAnew gives a record the entry that its facts and its covers call for.
func (s *settling) flattenAnew(n *node, r *record) {
	before := r.entry
	after, labels := s.flatten(n.key().prefix(), append(s.covers, r))
	if labels == s.labels.get(before.labels) {
		// The common case, spared the search for the labels and their number.
		if after.labels, after.identity = before.labels, before.identity; after == before {
			return
		}
	}
	// What after uses is in use before what before used is not: a shared identity stays alive.
	after.labels, after.identity = s.labels.acquire(labels), s.identities.Acquire(labels)
	s.owners.retain(after.owner)
	s.endpoints.retain(after.endpoint)
	s.emit(n, before, after)
	s.disuse(before)
	r.entry = after
}

// disuse gives back what an entry holds of shared values.
func (s *settling) disuse(entry flat) {
	s.identities.Release(entry.identity)
	s.labels.release(entry.labels)
	s.owners.release(entry.owner)
	s.endpoints.release(entry.endpoint)
}

// emit notes the delta from one entry to another; the zero entry is none.
func (s *settling) emit(n *node, before, after flat) {
	delta := Delta{Prefix: n.key().prefix()}
	if before != (flat{}) {
		entry := s.entry(before)
		delta.Old = &entry
		s.len--
	}
	if after != (flat{}) {
		entry := s.entry(after)
		delta.New = &entry
		s.len++
	}
	if delta != (Delta{Prefix: delta.Prefix}) { // a prefix that came and went in one call is no news
		s.deltas = append(s.deltas, delta)
	}
}
