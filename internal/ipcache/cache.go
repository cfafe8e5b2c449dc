package ipcache

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"warren/internal/cluster"
	"warren/internal/identity"
)

type slot struct {
	prefix   netip.Prefix
	source   cluster.Source
	resource string
}

// Cache is the map from prefixes to entries and the facts behind it.
type Cache struct {
	facts     map[slot]cluster.Fact
	entries   map[netip.Prefix]Entry
	allocator identity.Allocator
}

// New returns an empty cache.
func New() *Cache {
	return &Cache{facts: map[slot]cluster.Fact{}, entries: map[netip.Prefix]Entry{}}
}

// Upsert states facts, each in its own slot (prefix, source, resource), and returns what changed:
// one delta for each prefix whose entry is another than before the call, in prefix order.
// A fact without a valid prefix says nothing about any address and is ignored.
func (c *Cache) Upsert(facts ...cluster.Fact) []Delta {
	for _, fact := range facts {
		if fact.Prefix.IsValid() {
			fact.Prefix = cluster.CanonicalPrefix(fact.Prefix)
			c.facts[slot{fact.Prefix, fact.Source, fact.Resource}] = fact
		}
	}
	return c.settle()
}

// Delete empties one slot.
func (c *Cache) Delete(prefix netip.Prefix, source cluster.Source, resource string) []Delta {
	delete(c.facts, slot{cluster.CanonicalPrefix(prefix), source, resource})
	return c.settle()
}

// Replace makes facts all that the resource says: its other slots are emptied. What the resource
// says before and after is never gone in between.
func (c *Cache) Replace(source cluster.Source, resource string, facts []cluster.Fact) []Delta {
	maps.DeleteFunc(c.facts, func(s slot, _ cluster.Fact) bool { return s.source == source && s.resource == resource })
	for _, fact := range facts {
		if fact.Prefix.IsValid() {
			fact.Prefix, fact.Source, fact.Resource = cluster.CanonicalPrefix(fact.Prefix), source, resource
			c.facts[slot{fact.Prefix, source, resource}] = fact
		}
	}
	return c.settle()
}

// DeleteResource empties all slots of a resource.
func (c *Cache) DeleteResource(source cluster.Source, resource string) []Delta {
	return c.Replace(source, resource, nil)
}

// DropSource empties all slots of a source: of the restored one, when all others are synced.
func (c *Cache) DropSource(source cluster.Source) []Delta {
	maps.DeleteFunc(c.facts, func(s slot, _ cluster.Fact) bool { return s.source == source })
	return c.settle()
}

// Len returns the number of prefixes.
func (c *Cache) Len() int { return len(c.entries) }

// Get returns the entry of exactly this prefix.
func (c *Cache) Get(prefix netip.Prefix) (Entry, bool) {
	entry, ok := c.entries[cluster.CanonicalPrefix(prefix)]
	return entry, ok
}

// Lookup returns the most specific prefix that contains addr.
func (c *Cache) Lookup(addr netip.Addr) (prefix netip.Prefix, entry Entry, ok bool) {
	addr = addr.Unmap().WithZone("")
	for bits := addr.BitLen(); bits >= 0 && addr.IsValid(); bits-- {
		prefix := netip.PrefixFrom(addr, bits).Masked()
		if entry, ok := c.entries[prefix]; ok {
			return prefix, entry, true
		}
	}
	return netip.Prefix{}, Entry{}, false
}

// All returns the entries in prefix order: IPv4 first, a covering prefix before what it covers.
func (c *Cache) All() iter.Seq2[netip.Prefix, Entry] {
	return func(yield func(netip.Prefix, Entry) bool) {
		for _, prefix := range slices.SortedFunc(maps.Keys(c.entries), netip.Prefix.Compare) {
			if !yield(prefix, c.entries[prefix]) {
				return
			}
		}
	}
}

// Explain returns where the entry of exactly this prefix comes from.
func (c *Cache) Explain(prefix netip.Prefix) (Explanation, bool) {
	prefix = cluster.CanonicalPrefix(prefix)
	entry, ok := c.entries[prefix]
	if !ok {
		return Explanation{}, false
	}
	explanation := Explanation{Prefix: prefix, Entry: entry}
	facts, owner := c.behind(prefix)
	for _, fact := range facts {
		overruled := fact.Info.Owner != cluster.NodeID{} && fact.Info.Owner != owner
		explanation.Facts = append(explanation.Facts, Evidence{fact, overruled})
	}
	for i := range explanation.Facts {
		e := &explanation.Facts[i]
		if e.Overruled {
			continue
		}
		if explanation.Owner == nil && e.Fact.Info.Owner != (cluster.NodeID{}) {
			explanation.Owner = &e.Fact
		}
		if explanation.Pair == nil && e.Fact.Info.HasPair {
			explanation.Pair = &e.Fact
		}
	}
	for label := range entry.Labels.All() {
		origin := LabelOrigin{Label: label}
		for i := range explanation.Facts {
			e := &explanation.Facts[i]
			if !e.Overruled && origin.Fact == nil && slices.Contains(e.Fact.Info.Labels, label) {
				origin.Fact = &e.Fact
			}
		}
		explanation.Labels = append(explanation.Labels, origin)
	}
	return explanation, true
}

// Conflicts returns the disagreements between live facts, by prefix and field.
func (c *Cache) Conflicts() []Conflict {
	var conflicts []Conflict
	for prefix := range c.All() {
		facts, _ := c.behind(prefix)
		facts = slices.DeleteFunc(facts, func(f cluster.Fact) bool {
			return f.Prefix != prefix || f.Source == cluster.SourceRestored
		})
		var winner *cluster.Fact
		var losers, agreeing []cluster.Fact
		for i, fact := range facts {
			switch {
			case fact.Info.Owner == cluster.NodeID{}:
				agreeing = append(agreeing, fact)
			case winner == nil || fact.Info.Owner == winner.Info.Owner:
				winner = cmp.Or(winner, &facts[i])
				agreeing = append(agreeing, fact)
			default:
				losers = append(losers, fact)
			}
		}
		if len(losers) > 0 {
			conflicts = append(conflicts, Conflict{prefix, FieldOwner, *winner, losers})
		}
		winner, losers = nil, nil
		for i, fact := range agreeing {
			switch {
			case !fact.Info.HasPair:
			case winner == nil:
				winner = &agreeing[i]
			case fact.Info.Pair != winner.Info.Pair:
				losers = append(losers, fact)
			}
		}
		if len(losers) > 0 {
			conflicts = append(conflicts, Conflict{prefix, FieldPair, *winner, losers})
		}
	}
	return conflicts
}

func (c *Cache) settle() []Delta {
	after := map[netip.Prefix]Entry{}
	for s := range c.facts {
		if _, done := after[s.prefix]; !done {
			after[s.prefix] = c.flatten(s.prefix)
		}
	}
	var deltas []Delta
	for prefix, entry := range after {
		before, had := c.entries[prefix]
		entry.Identity = c.allocator.Acquire(entry.Labels)
		after[prefix] = entry
		switch {
		case !had:
			deltas = append(deltas, Delta{prefix, nil, &entry})
		case before != entry:
			deltas = append(deltas, Delta{prefix, &before, &entry})
		}
	}
	for prefix, entry := range c.entries {
		c.allocator.Release(entry.Identity)
		if _, has := after[prefix]; !has {
			deltas = append(deltas, Delta{prefix, &entry, nil})
		}
	}
	c.entries = after
	slices.SortFunc(deltas, func(a, b Delta) int { return a.Prefix.Compare(b.Prefix) })
	return deltas
}

// behind returns the facts that bear on a prefix in order of precedence, and the owner.
func (c *Cache) behind(prefix netip.Prefix) (facts []cluster.Fact, owner cluster.NodeID) {
	for _, fact := range c.facts {
		if fact.Prefix.Bits() <= prefix.Bits() && fact.Prefix.Contains(prefix.Addr()) {
			facts = append(facts, fact)
		}
	}
	slices.SortFunc(facts, func(a, b cluster.Fact) int {
		return cmp.Or(
			cmp.Compare(b.Prefix.Bits(), a.Prefix.Bits()),
			cmp.Compare(a.Source, b.Source),
			cmp.Compare(b.Issued, a.Issued),
			cmp.Compare(a.Resource, b.Resource))
	})
	for _, fact := range facts {
		owner = cmp.Or(owner, fact.Info.Owner)
	}
	return facts, owner
}

func (c *Cache) flatten(prefix netip.Prefix) Entry {
	facts, owner := c.behind(prefix)
	entry := Entry{Owner: owner}
	var labels identity.Labels
	for _, fact := range facts {
		info := fact.Info
		if info.Owner != (cluster.NodeID{}) && info.Owner != owner {
			continue
		}
		if info.HasPair && !entry.HasPair {
			entry.Pair, entry.HasPair = info.Pair, true
		}
		stated := identity.NewLabels(info.Labels...)
		if fact.Prefix == prefix {
			entry.Flags |= info.Flags
		} else {
			entry.Flags |= info.Flags &^ cluster.FlagNode
			stated = identity.Inheritable(stated)
		}
		labels = labels.Union(stated)
	}
	entry.Labels = identity.Complete(prefix, labels, owner != cluster.NodeID{})
	return entry
}
