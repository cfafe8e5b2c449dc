package ipcache

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"warren/internal/cluster"
)

// Field names what facts can disagree about.
type Field string

// The fields of conflicts.
const (
	FieldOwner Field = "owner"
	FieldPair  Field = "pair"
)

// Conflict is a disagreement between live facts about one prefix. Winner is the fact that is used.
type Conflict struct {
	Prefix netip.Prefix
	Field  Field
	Winner cluster.Fact
	// Losers are the facts that say otherwise, strongest first.
	Losers []cluster.Fact
}

// Conflicts returns the disagreements by prefix and field: "owner" when facts give a prefix to
// different machines, "pair" when facts that do not dispute the owner reach it differently. Restored
// facts are memories and in no conflict. The cost is that of the disagreements, not of the map.
func (c *Cache) Conflicts() []Conflict {
	nodes := slices.SortedFunc(maps.Keys(c.conflicted), func(a, b handle) int {
		return c.trie.nodes.at(a).key().compare(c.trie.nodes.at(b).key())
	})
	var conflicts []Conflict
	for _, h := range nodes {
		n := c.trie.nodes.at(h)
		conflicts = append(conflicts, c.conflictsAt(n.key().prefix(), c.records.at(n.record))...)
	}
	return conflicts
}

// Conflicted returns the number of prefixes about which facts disagree.
func (c *Cache) Conflicted() int { return len(c.conflicted) }

func (c *Cache) conflictsAt(prefix netip.Prefix, r *record) []Conflict {
	owner, pair := Conflict{Prefix: prefix, Field: FieldOwner}, Conflict{Prefix: prefix, Field: FieldPair}
	c.disputes(r, func(field Field, winner, loser *fact) {
		conflict := &pair
		if field == FieldOwner {
			conflict = &owner
		}
		conflict.Winner = c.expand(winner)
		conflict.Losers = append(conflict.Losers, c.expand(loser))
	})
	return slices.DeleteFunc([]Conflict{owner, pair}, func(c Conflict) bool { return c.Losers == nil })
}

// noteConflict keeps the set of conflicted prefixes up to date for the record of a node.
func (c *Cache) noteConflict(h handle, r *record) {
	disputed := false
	c.disputes(r, func(Field, *fact, *fact) { disputed = true })
	if disputed {
		c.conflicted[h] = struct{}{}
	} else {
		delete(c.conflicted, h)
	}
}

// disputes calls visit for every fact of a record that says otherwise than the fact which is used.
func (s *store) disputes(r *record, visit func(field Field, winner, loser *fact)) {
	if r.facts == 0 || s.facts.at(r.facts).next == 0 {
		return // one fact is of one mind
	}
	var owner, pair *fact
	for f := range s.claims(r) {
		if owner == nil && f.says.owner != 0 {
			owner = f
		}
	}
	for f := range s.claims(r) {
		switch {
		case owner != nil && f.says.overruled(owner.says.owner):
			visit(FieldOwner, owner, f)
		case pair == nil && f.says.hasPair:
			pair = f
		case f.says.hasPair && (f.says.endpoint != pair.says.endpoint || f.says.key != pair.says.key):
			visit(FieldPair, pair, f)
		}
	}
}

// claims returns the facts of a record that are not restored, strongest first.
func (s *store) claims(r *record) iter.Seq[*fact] {
	return func(yield func(*fact) bool) {
		for h := r.facts; h != 0; h = s.facts.at(h).next {
			f := s.facts.at(h)
			if s.resources.get(f.resource).source != cluster.SourceRestored && !yield(f) {
				return
			}
		}
	}
}
