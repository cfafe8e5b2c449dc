package ipcache

import (
	"net/netip"
	"slices"

	"warren/internal/cluster"
)

// Explanation is where an entry comes from.
type Explanation struct {
	Prefix netip.Prefix
	Entry  Entry
	// Facts are the facts about the prefix and about those that cover it, in the order in which they
	// are asked: the most specific prefix first, then the strongest.
	Facts []Evidence
	// Owner and Pair are the facts that gave these fields; nil when none did.
	Owner, Pair *cluster.Fact
	// Labels says of every label of the entry where it comes from, in the entry's order.
	Labels []LabelOrigin
}

// Evidence is a fact and whether it counts.
type Evidence struct {
	Fact cluster.Fact
	// Overruled says that the prefix belongs to another machine than the fact claims. Nothing of such
	// a fact is used.
	Overruled bool
}

// LabelOrigin says where a label comes from.
type LabelOrigin struct {
	Label string
	// Fact is the first one that states the label; nil when the label follows from the others
	// (reserved:unmanaged, reserved:world, cidr:…).
	Fact *cluster.Fact
}

// Explain returns where the entry of exactly this prefix comes from. It costs nothing until it is
// called: the cache keeps no provenance, only the facts.
func (c *Cache) Explain(prefix netip.Prefix) (Explanation, bool) {
	n := c.find(prefix)
	if n == nil {
		return Explanation{}, false
	}
	entry := c.records.at(n.record).entry
	e := Explanation{Prefix: n.key().prefix(), Entry: c.entry(entry), Facts: c.evidence(n.key(), entry.owner)}
	e.Owner = e.first(func(info cluster.Info) bool { return info.Owner != cluster.NodeID{} })
	e.Pair = e.first(func(info cluster.Info) bool { return info.HasPair })
	for label := range e.Entry.Labels.All() {
		from := e.first(func(info cluster.Info) bool { return slices.Contains(info.Labels, label) })
		e.Labels = append(e.Labels, LabelOrigin{label, from})
	}
	return e, true
}

// evidence returns the facts that bear on a prefix which belongs to owner.
func (c *Cache) evidence(k key, owner handle) []Evidence {
	var covers []*record
	c.trie.covers(k, func(n *node) { covers = append(covers, c.records.at(n.record)) })
	var evidence []Evidence
	for _, r := range slices.Backward(covers) {
		for h := r.facts; h != 0; h = c.facts.at(h).next {
			f := c.facts.at(h)
			evidence = append(evidence, Evidence{c.expand(f), f.says.overruled(owner)})
		}
	}
	return evidence
}

// first returns the first fact that counts and has what is asked for.
func (e *Explanation) first(has func(cluster.Info) bool) *cluster.Fact {
	for i := range e.Facts {
		if !e.Facts[i].Overruled && has(e.Facts[i].Fact.Info) {
			return &e.Facts[i].Fact
		}
	}
	return nil
}
