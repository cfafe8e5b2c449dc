package ipcache_test

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"warren/internal/cluster"
	"warren/internal/identity"
	"warren/internal/ipcache"
)

// slot is where a fact lives.
type slot struct {
	prefix   netip.Prefix
	source   cluster.Source
	resource string
}

// model is the whole truth about a Cache, said plainly: the live facts. Everything else is a function
// of them; there is no order of events to remember.
type model map[slot]cluster.Fact

func (m model) put(f cluster.Fact) { m[slot{f.Prefix, f.Source, f.Resource}] = f }

func (m model) drop(gone func(slot) bool) {
	maps.DeleteFunc(m, func(s slot, _ cluster.Fact) bool { return gone(s) })
}

// behind returns the facts that bear on a prefix: more specific, stronger, younger, smaller name first.
func (m model) behind(prefix netip.Prefix) []cluster.Fact {
	var facts []cluster.Fact
	for _, f := range m {
		if f.Prefix.Bits() <= prefix.Bits() && f.Prefix.Contains(prefix.Addr()) {
			facts = append(facts, f)
		}
	}
	slices.SortFunc(facts, func(a, b cluster.Fact) int {
		return cmp.Or(-cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()), cmp.Compare(a.Source, b.Source),
			-cmp.Compare(a.Issued, b.Issued), cmp.Compare(a.Resource, b.Resource))
	})
	return facts
}

// entry flattens the facts behind a prefix.
func (m model) entry(prefix netip.Prefix) ipcache.Entry {
	var entry ipcache.Entry
	for _, f := range m.behind(prefix) {
		entry.Owner = cmp.Or(entry.Owner, f.Info.Owner)
	}
	var labels identity.Labels
	for _, f := range m.behind(prefix) {
		stated, flags := identity.NewLabels(f.Info.Labels...), f.Info.Flags
		if f.Prefix != prefix {
			stated, flags = identity.Inheritable(stated), flags&^cluster.FlagNode
		}
		if f.Info.Owner != (cluster.NodeID{}) && f.Info.Owner != entry.Owner {
			continue
		}
		if f.Info.HasPair && !entry.HasPair {
			entry.Pair, entry.HasPair = f.Info.Pair, true
		}
		labels, entry.Flags = labels.Union(stated), entry.Flags|flags
	}
	entry.Labels = identity.Complete(prefix, labels, entry.Owner != cluster.NodeID{})
	entry.Identity = numberOf(entry.Labels)
	return entry
}

// numberOf is right as long as no two label sets of a test prefer the same number.
func numberOf(labels identity.Labels) identity.Number {
	if number, ok := identity.Reserved(labels); ok {
		return number
	}
	return identity.PreferredNumber(labels)
}

func (m model) entries() map[netip.Prefix]ipcache.Entry {
	entries := map[netip.Prefix]ipcache.Entry{}
	for s := range m {
		entries[s.prefix] = m.entry(s.prefix)
	}
	return entries
}

// lookup returns the longest prefix that contains addr, the zero prefix when there is none.
func (m model) lookup(addr netip.Addr) netip.Prefix {
	var best netip.Prefix
	for s := range m {
		if s.prefix.Contains(addr) && (!best.IsValid() || s.prefix.Bits() > best.Bits()) {
			best = s.prefix
		}
	}
	return best
}

// conflicts compares every two claims on one prefix: the stronger one of a pair wins.
func (m model) conflicts() []ipcache.Conflict {
	var conflicts []ipcache.Conflict
	for _, prefix := range slices.SortedFunc(maps.Keys(m.entries()), netip.Prefix.Compare) {
		claims := slices.DeleteFunc(m.behind(prefix), func(f cluster.Fact) bool {
			return f.Prefix != prefix || f.Source == cluster.SourceRestored
		})
		owner := func(f cluster.Fact) any { return f.Info.Owner }
		has := func(f cluster.Fact) bool { return f.Info.Owner != cluster.NodeID{} }
		claims = disagree(&conflicts, prefix, ipcache.FieldOwner, claims, has, owner)
		pair := func(f cluster.Fact) any { return f.Info.Pair }
		has = func(f cluster.Fact) bool { return f.Info.HasPair }
		disagree(&conflicts, prefix, ipcache.FieldPair, claims, has, pair)
	}
	return conflicts
}

// disagree adds the conflict about one field and returns the claims that did not lose it.
func disagree(to *[]ipcache.Conflict, prefix netip.Prefix, field ipcache.Field, claims []cluster.Fact, has func(cluster.Fact) bool, value func(cluster.Fact) any) []cluster.Fact {
	var agreeing, losers []cluster.Fact
	first := slices.IndexFunc(claims, has)
	for _, f := range claims {
		if has(f) && value(f) != value(claims[first]) {
			losers = append(losers, f)
		} else {
			agreeing = append(agreeing, f)
		}
	}
	if losers != nil {
		*to = append(*to, ipcache.Conflict{Prefix: prefix, Field: field, Winner: claims[first], Losers: losers})
	}
	return agreeing
}
