package ipcache

// settle flattens what was marked since the last settle and returns what is different. It walks the
// trie in prefix order along the marks, so that its work is that of the changed prefixes and, where
// the facts of a cover changed, of those under it.
func (c *Cache) settle() []Delta {
	if c.marked == 0 {
		return nil
	}
	s := settling{Cache: c, deltas: make([]Delta, 0, c.marked)}
	c.marked = 0
	for i := range c.trie.roots {
		if root := &c.trie.roots[i]; *root != 0 {
			*root = s.visit(*root, false)
		}
	}
	return s.deltas
}

type settling struct {
	*Cache
	deltas []Delta
}

// visit settles what is at and under a node and returns what stands in its place afterwards. heirs
// says that facts above, which the records from here on inherit, changed.
func (s *settling) visit(h handle, heirs bool) handle {
	n := s.trie.nodes.at(h)
	if n.marks == 0 && !heirs {
		return h
	}
	changed := n.marks&markFacts != 0
	n.marks = 0
	if n.record != 0 && (changed || heirs) {
		s.update(h, n)
	}
	depth := len(s.covers)
	if n.record != 0 {
		s.covers = append(s.covers, s.records.at(n.record))
	}
	for side, child := range n.child {
		if child != 0 {
			n.child[side] = s.visit(child, heirs || changed)
		}
	}
	s.covers = s.covers[:depth]
	return s.trie.prune(h)
}

// update flattens the record of a node and notes the difference. A record without facts goes.
func (s *settling) update(h handle, n *node) {
	r := s.records.at(n.record)
	s.noteConflict(h, r)
	if r.facts == 0 {
		s.emit(n, r.entry, flat{})
		s.disuse(r.entry)
		s.records.release(n.record)
		n.record = 0
		s.len--
		return
	}
	before := r.entry
	after, labels := s.flatten(n.key.prefix(), append(s.covers, r))
	if labels == s.labels.get(before.labels) {
		// The common case, spared the search for the labels and their number.
		if after.labels, after.identity = before.labels, before.identity; after == before {
			return
		}
	}
	after.identity = s.identities.Acquire(labels)
	after.labels = s.labels.acquire(labels)
	s.owners.retain(after.owner)
	s.endpoints.retain(after.endpoint)
	s.emit(n, before, after)
	s.disuse(before)
	r.entry = after
	if before == (flat{}) {
		s.len++
	}
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
	delta := Delta{Prefix: n.key.prefix()}
	if before != (flat{}) {
		entry := s.entry(before)
		delta.Old = &entry
	}
	if after != (flat{}) {
		entry := s.entry(after)
		delta.New = &entry
	}
	if delta.Old != nil || delta.New != nil {
		s.deltas = append(s.deltas, delta)
	}
}
