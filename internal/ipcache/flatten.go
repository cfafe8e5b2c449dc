package ipcache

import (
	"net/netip"

	"warren/internal/cluster"
	"warren/internal/identity"
)

// flat is an Entry as it is kept. Its values are interned: flats are equal when the entries are. The
// zero value is no entry, since every entry has labels.
type flat struct {
	identity                identity.Number
	labels, owner, endpoint handle
	key                     cluster.KeyID
	hasPair                 bool
	flags                   cluster.Flags
}

// flatten returns the entry that the facts about a prefix and about its covers call for: covers are
// the records that cover it, the widest first, and then its own. Labels are returned aside, not yet
// interned, and the identity is left out.
func (s *store) flatten(prefix netip.Prefix, covers []*record) (flat, identity.Labels) {
	entry := flat{owner: s.owner(covers)}
	var labels identity.Labels
	for depth := len(covers) - 1; depth >= 0; depth-- {
		own := depth == len(covers)-1
		for h := covers[depth].facts; h != 0; h = s.facts.at(h).next {
			says := s.facts.at(h).says
			if says.overruled(entry.owner) {
				continue
			}
			if says.hasPair && !entry.hasPair {
				entry.hasPair, entry.endpoint, entry.key = true, says.endpoint, says.key
			}
			entry.flags |= says.flagsFor(own)
			labels = labels.Union(s.labelsFor(says, own))
		}
	}
	return entry, identity.Complete(prefix, labels, entry.owner != 0)
}

// owner returns the owner that the first fact with an opinion names.
func (s *store) owner(covers []*record) handle {
	for depth := len(covers) - 1; depth >= 0; depth-- {
		for h := covers[depth].facts; h != 0; h = s.facts.at(h).next {
			if owner := s.facts.at(h).says.owner; owner != 0 {
				return owner
			}
		}
	}
	return 0
}

// needy reports whether a record takes its owner or its pair from its covers, should they have one.
func (s *store) needy(r *record) bool {
	owner, pair := s.owner([]*record{r}), false
	for h := r.facts; h != 0; h = s.facts.at(h).next {
		says := s.facts.at(h).says
		pair = pair || says.hasPair && !says.overruled(owner)
	}
	return r.facts != 0 && (owner == 0 || !pair)
}

// overruled reports whether the statement claims for another machine what belongs to owner.
func (says statement) overruled(owner handle) bool { return says.owner != 0 && says.owner != owner }

// flagsFor returns the flags that hold for the stated prefix itself or for one under it: only an
// exact address is a machine's own.
func (says statement) flagsFor(own bool) cluster.Flags {
	if own {
		return says.flags
	}
	return says.flags &^ cluster.FlagNode
}

// labelsFor returns the labels that hold for the stated prefix itself or for one under it.
func (s *store) labelsFor(says statement, own bool) identity.Labels {
	labels := s.labels.get(says.labels)
	if own {
		return labels
	}
	return identity.Inheritable(labels)
}

// entry returns a kept entry as consumers see it.
func (s *store) entry(f flat) Entry {
	return Entry{
		Identity: f.identity,
		Labels:   s.labels.get(f.labels),
		Pair:     cluster.Pair{Endpoint: s.endpoints.get(f.endpoint), Key: f.key},
		HasPair:  f.hasPair,
		Owner:    s.owners.get(f.owner),
		Flags:    f.flags,
	}
}
