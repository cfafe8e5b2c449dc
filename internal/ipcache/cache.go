package ipcache

import (
	"net/netip"

	"warren/internal/cluster"
	"warren/internal/identity"
)

// Cache is the map from prefixes to entries, and the facts behind it.
//
// Every method that changes facts settles before it returns: it returns one delta for each prefix
// whose entry is another than before the call, in prefix order.
type Cache struct {
	store
	identities identity.Allocator
	// conflicted are the nodes about whose prefix facts disagree.
	conflicted map[handle]struct{}
	// covers is working memory of settle: the records above the visited node, the widest first.
	covers []*record
	len    int
}

// New returns an empty cache.
func New() *Cache { return &Cache{conflicted: map[handle]struct{}{}} }

// Upsert states facts, each in its slot of prefix, source and resource. A fact without a valid prefix
// says nothing about any address and is ignored.
func (c *Cache) Upsert(facts ...cluster.Fact) []Delta {
	for _, fact := range facts {
		if fact.Prefix.IsValid() {
			c.put(fact)
		}
	}
	return c.settle()
}

// Delete empties one slot.
func (c *Cache) Delete(prefix netip.Prefix, source cluster.Source, name string) []Delta {
	if n := c.find(prefix); n != nil {
		if slot := c.slot(c.records.at(n.record), resource{source, name}); slot != 0 {
			c.withdraw(slot)
		}
	}
	return c.settle()
}

// Replace makes facts all that a resource says: its slots for other prefixes are emptied. The source
// and the resource of the facts are set. Nothing that the resource says before and after is ever gone
// in between.
func (c *Cache) Replace(source cluster.Source, name string, facts []cluster.Fact) []Delta {
	stated := make(map[handle]struct{}, len(facts))
	for _, fact := range facts {
		if fact.Prefix.IsValid() {
			fact.Source, fact.Resource = source, name
			stated[c.put(fact)] = struct{}{}
		}
	}
	c.withdrawOf(c.resources.find(resource{source, name}), stated)
	return c.settle()
}

// DeleteResource empties all slots of a resource.
func (c *Cache) DeleteResource(source cluster.Source, name string) []Delta {
	return c.Replace(source, name, nil)
}

// DropSource empties all slots of a source: those of cluster.SourceRestored when every other source
// is synced.
func (c *Cache) DropSource(source cluster.Source) []Delta {
	for by := range c.stated {
		if c.stated[by] != 0 && c.resources.get(handle(by)).source == source {
			c.withdrawOf(handle(by), nil)
		}
	}
	return c.settle()
}

// withdrawOf empties the slots of a resource except those of the nodes to keep.
func (c *Cache) withdrawOf(by handle, keep map[handle]struct{}) {
	if by == 0 {
		return
	}
	for slot := c.stated[by]; slot != 0; {
		f := c.facts.at(slot)
		after := f.after
		if _, kept := keep[f.node]; !kept {
			c.withdraw(slot)
		}
		slot = after
	}
}
