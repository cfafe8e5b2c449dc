package ipcache

import (
	"net/netip"

	"warren/internal/cluster"
	"warren/internal/identity"
)

// Entry is what is known of a prefix. It is comparable.
type Entry struct {
	// Identity is the number of Labels.
	Identity identity.Number
	// Labels are never empty: what nobody labels is reserved:unmanaged.
	Labels identity.Labels
	// Pair counts only when HasPair is set; a present pair with key 0 says "do not encrypt".
	Pair    cluster.Pair
	HasPair bool
	// Owner is the machine the prefix belongs to; the zero value when nobody says.
	Owner cluster.NodeID
	Flags cluster.Flags
}

// Delta is one change of the map. Old is nil when the prefix is new, New when it is gone; a
// consumer that applied all deltas so far has exactly Old.
type Delta struct {
	Prefix   netip.Prefix
	Old, New *Entry
}

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

// Explanation is where an entry comes from.
type Explanation struct {
	Prefix netip.Prefix
	Entry  Entry
	// Facts are the facts about the prefix and about those that cover it, in the order in which
	// they are asked: the most specific prefix first, then the strongest.
	Facts []Evidence
	// Owner and Pair are the facts that gave these fields; nil when none did.
	Owner, Pair *cluster.Fact
	// Labels says of every label of the entry where it comes from, in the entry's order.
	Labels []LabelOrigin
}

// Evidence is a fact and whether it counts.
type Evidence struct {
	Fact cluster.Fact
	// Overruled says that the prefix belongs to another machine than the fact claims; nothing
	// of such a fact is used.
	Overruled bool
}

// LabelOrigin says where a label comes from.
type LabelOrigin struct {
	Label string
	// Fact is the first one that states the label; nil when the label follows from the others
	// (reserved:unmanaged, reserved:world, cidr:…).
	Fact *cluster.Fact
}
