package ipcache

import (
	"cmp"
	"net/netip"

	"warren/internal/cluster"
	"warren/internal/identity"
)

// store keeps the facts, by prefix in order of precedence and by resource, and the values they share.
// Its methods leave marks in the trie for what has to be flattened again.
type store struct {
	trie      trie
	records   slab[record]
	facts     slab[fact]
	labels    interner[identity.Labels]
	owners    interner[cluster.NodeID]
	endpoints interner[netip.Addr]
	resources interner[resource]
	// stated has, by handle of a resource, the first of its facts.
	stated []handle
	// marked counts the slots that changed since the last settle.
	marked int
}

// record is a prefix that has facts.
type record struct {
	// facts is the strongest one.
	facts handle
	// entry is what listeners have; the zero value when they have none.
	entry flat
}

// fact is a slot: what one resource says about one prefix.
type fact struct {
	says statement
	// node is the prefix in the trie; next is the fact after this one in precedence.
	node, next handle
	// resource states the fact; before and after are its other facts.
	resource, before, after handle
}

// statement is what a fact says. Its values are interned: statements are equal when they say the same.
type statement struct {
	issued                  int64
	labels, owner, endpoint handle
	key                     cluster.KeyID
	hasPair                 bool
	flags                   cluster.Flags
}

// resource is who states a fact.
type resource struct {
	source cluster.Source
	name   string
}

// put fills the slot of a fact and returns the node of its prefix.
func (s *store) put(stated cluster.Fact) handle {
	h, n := s.trie.reach(keyOf(cluster.CanonicalPrefix(stated.Prefix)))
	if n.record == 0 {
		n.record, _ = s.records.alloc()
	}
	r := s.records.at(n.record)
	by := resource{stated.Source, stated.Resource}
	slot := s.slot(r, by)
	isNew := slot == 0
	if isNew {
		slot = s.open(h, by)
	}
	f := s.facts.at(slot)
	before := f.says
	f.says = s.state(stated, before)
	s.unstate(before)
	if !isNew {
		alone := r.facts == slot && f.next == 0
		if f.says == before || alone && f.says.butIssued(before.issued) == before {
			return h
		}
		s.delist(r, slot)
	}
	s.enlist(r, slot)
	n.marks |= markFacts | before.heritage() | f.says.heritage()
	s.marked++
	return h
}

// withdraw empties a slot. The record stays for settle, which tells the listeners.
func (s *store) withdraw(slot handle) {
	f := s.facts.at(slot)
	_, n := s.trie.reach(s.trie.nodes.at(f.node).key())
	n.marks |= markFacts | f.says.heritage()
	s.marked++
	s.delist(s.records.at(n.record), slot)
	s.close(slot)
}

// slot returns the fact of a record that a resource states, 0 when there is none.
func (s *store) slot(r *record, by resource) handle {
	for h := r.facts; h != 0; h = s.facts.at(h).next {
		if s.resources.get(s.facts.at(h).resource) == by {
			return h
		}
	}
	return 0
}

// open makes an empty slot of a resource for the prefix of a node.
func (s *store) open(node handle, by resource) handle {
	from := s.resources.acquire(by)
	for len(s.stated) <= int(from) {
		s.stated = append(s.stated, 0)
	}
	h, f := s.facts.alloc()
	f.node, f.resource, f.after = node, from, s.stated[from]
	if f.after != 0 {
		s.facts.at(f.after).before = h
	}
	s.stated[from] = h
	return h
}

// close frees a slot that is in no record's list any more.
func (s *store) close(h handle) {
	f := s.facts.at(h)
	if f.before != 0 {
		s.facts.at(f.before).after = f.after
	} else {
		s.stated[f.resource] = f.after
	}
	if f.after != 0 {
		s.facts.at(f.after).before = f.before
	}
	s.unstate(f.says)
	s.resources.release(f.resource)
	s.facts.release(h)
}

// enlist puts a fact in its place in the record's order of precedence.
func (s *store) enlist(r *record, h handle) {
	f, link := s.facts.at(h), &r.facts
	for *link != 0 && s.precedence(s.facts.at(*link), f) < 0 {
		link = &s.facts.at(*link).next
	}
	f.next, *link = *link, h
}

// delist takes a fact out of the record's order.
func (s *store) delist(r *record, h handle) {
	link := &r.facts
	for *link != h {
		link = &s.facts.at(*link).next
	}
	*link = s.facts.at(h).next
}

// precedence orders the facts of one prefix, the strongest first: by rank of the source, then the
// younger one, then by name. No two of them are equal, as (source, name) is the slot.
func (s *store) precedence(a, b *fact) int {
	by, other := s.resources.get(a.resource), s.resources.get(b.resource)
	return cmp.Or(
		cmp.Compare(by.source, other.source),
		cmp.Compare(b.says.issued, a.says.issued),
		cmp.Compare(by.name, other.name))
}

// state interns what a fact says, much of which its slot probably said before.
func (s *store) state(f cluster.Fact, before statement) statement {
	says := statement{
		issued: f.Issued,
		labels: s.labels.acquireLike(before.labels, identity.NewLabels(f.Info.Labels...)),
		owner:  s.owners.acquireLike(before.owner, f.Info.Owner),
		flags:  f.Info.Flags,
	}
	if f.Info.HasPair {
		says.hasPair, says.key = true, f.Info.Pair.Key
		says.endpoint = s.endpoints.acquireLike(before.endpoint, f.Info.Pair.Endpoint)
	}
	return says
}

// unstate gives back what state took.
func (s *store) unstate(says statement) {
	s.labels.release(says.labels)
	s.owners.release(says.owner)
	s.endpoints.release(says.endpoint)
}

// heritage returns what a statement leaves to the prefixes under its own.
func (says statement) heritage() (left mark) {
	if says.owner != 0 || says.hasPair {
		left |= markRoute
	}
	if says.labels != 0 || says.flags != 0 {
		left |= markTraits
	}
	return left
}

// butIssued returns the statement with another age.
func (says statement) butIssued(issued int64) statement {
	says.issued = issued
	return says
}

// expand returns a kept fact as it was stated, with its labels in canonical form.
func (s *store) expand(f *fact) cluster.Fact {
	by := s.resources.get(f.resource)
	return cluster.Fact{
		Prefix:   s.trie.nodes.at(f.node).key().prefix(),
		Source:   by.source,
		Resource: by.name,
		Issued:   f.says.issued,
		Info: cluster.Info{
			Labels:  s.labels.get(f.says.labels).Strings(),
			Pair:    cluster.Pair{Endpoint: s.endpoints.get(f.says.endpoint), Key: f.says.key},
			HasPair: f.says.hasPair,
			Owner:   s.owners.get(f.says.owner),
			Flags:   f.says.flags,
		},
	}
}
