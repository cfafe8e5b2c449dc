package ipcache

import (
	"iter"
	"net/netip"

	"warren/internal/cluster"
)

// Len returns the number of prefixes.
func (c *Cache) Len() int { return c.len }

// Get returns the entry of exactly this prefix.
func (c *Cache) Get(prefix netip.Prefix) (entry Entry, ok bool) {
	n := c.find(prefix)
	if n == nil {
		return Entry{}, false
	}
	return c.entry(c.records.at(n.record).entry), true
}

// Lookup returns the most specific prefix that contains addr, and its entry.
func (c *Cache) Lookup(addr netip.Addr) (prefix netip.Prefix, entry Entry, ok bool) {
	if !addr.IsValid() {
		return netip.Prefix{}, Entry{}, false
	}
	var last *node
	c.trie.covers(keyOf(cluster.HostPrefix(addr)), func(n *node) { last = n })
	if last == nil {
		return netip.Prefix{}, Entry{}, false
	}
	return last.key().prefix(), c.entry(c.records.at(last.record).entry), true
}

// All returns the entries in prefix order: IPv4 before IPv6, by address, a covering prefix before
// what it covers. The cache must not be changed meanwhile.
func (c *Cache) All() iter.Seq2[netip.Prefix, Entry] {
	return func(yield func(netip.Prefix, Entry) bool) {
		visit := func(n *node) bool { return yield(n.key().prefix(), c.entry(c.records.at(n.record).entry)) }
		_ = c.trie.walk(c.trie.roots[0], visit) && c.trie.walk(c.trie.roots[1], visit)
	}
}

// find returns the node that has the record of a prefix, nil when there is none.
func (c *Cache) find(prefix netip.Prefix) *node {
	if !prefix.IsValid() {
		return nil
	}
	k := keyOf(cluster.CanonicalPrefix(prefix))
	var last *node
	c.trie.covers(k, func(n *node) { last = n })
	if last == nil || last.key() != k {
		return nil
	}
	return last
}
