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
	// Owner is the machine the prefix belongs to; the zero value when nobody says.
	Owner cluster.NodeID
	// Pair counts only when HasPair is set; a present pair with key 0 says "do not encrypt".
	Pair    cluster.Pair
	HasPair bool
	Flags   cluster.Flags
}

// Delta is one change of the map. Old is nil when the prefix is new, New when it is gone; whoever
// applied every delta so far has exactly Old.
type Delta struct {
	Prefix   netip.Prefix
	Old, New *Entry
}
