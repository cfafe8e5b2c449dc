package plan

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"warren/internal/cluster"
)

// AllowedIP gives a prefix to a peer. WireGuard takes it from whoever had it, in one step.
type AllowedIP struct {
	Prefix netip.Prefix
	Peer   cluster.PublicKey
}

// PrefixEntry is a prefix with what the datapath has to know of it.
type PrefixEntry struct {
	Prefix netip.Prefix
	Entry  Entry
}

// Ops are the operations from one state to another. The fields are in the order in which they have
// to be applied, so that no packet is lost meanwhile:
//
//	a peer exists before it is given prefixes, and has them before the datapath sends to it;
//	the datapath stops sending to a prefix before its peer loses it, and a peer goes last.
//
// Each slice is sorted, and each operation may be applied twice.
type Ops struct {
	SetPeers      []Peer              // add, or pin the endpoint again
	AllowedIPs    []AllowedIP         // give, or move
	SetEntries    []PrefixEntry       // add, or change in place; what is local before what is not
	DeleteEntries []netip.Prefix      // no live address is among them
	Orphans       []netip.Prefix      // allowed IPs that nobody shall have
	RemovePeers   []cluster.PublicKey // have no allowed IP left
}

// Len counts the operations.
func (o Ops) Len() int {
	return len(o.SetPeers) + len(o.AllowedIPs) + len(o.SetEntries) + len(o.DeleteEntries) + len(o.Orphans) + len(o.RemovePeers)
}

// String prints one operation a line, in order, for golden tests and debug logs.
func (o Ops) String() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	for _, peer := range o.SetPeers {
		line("peer %s set: %s at %s", peer.Key.Short(), peer.Node, peer.Endpoint)
	}
	for _, ip := range o.AllowedIPs {
		line("peer %s gets %s", ip.Peer.Short(), ip.Prefix)
	}
	for _, e := range o.SetEntries {
		line("entry %s set: %s", e.Prefix, e.Entry)
	}
	for _, prefix := range o.DeleteEntries {
		line("entry %s deleted", prefix)
	}
	for _, prefix := range o.Orphans {
		line("nobody gets %s", prefix)
	}
	for _, key := range o.RemovePeers {
		line("peer %s removed", key.Short())
	}
	return b.String()
}

// Options of Diff; the zero value adds and changes, and removes nothing.
type Options struct {
	// Prune removes what is not wanted. It is for after every source has said Synced: until
	// then what the kernel holds from an earlier run may still be confirmed.
	Prune bool
}

// Diff returns what turns have into want.
func Diff(want, have State, options Options) Ops {
	ops := Ops{}
	for _, peer := range want.Peers {
		// The node is a name for people, not a part of the device.
		if old, ok := have.Peers[peer.Key]; !ok || old.Endpoint != peer.Endpoint {
			ops.SetPeers = append(ops.SetPeers, peer)
		}
	}
	for prefix, peer := range changed(want.AllowedIPs, have.AllowedIPs) {
		ops.AllowedIPs = append(ops.AllowedIPs, AllowedIP{prefix, peer})
	}
	for prefix, entry := range changed(want.Entries, have.Entries) {
		ops.SetEntries = append(ops.SetEntries, PrefixEntry{prefix, entry})
	}
	if options.Prune {
		ops.DeleteEntries = missing(want.Entries, have.Entries)
		ops.Orphans = missing(want.AllowedIPs, have.AllowedIPs)
		ops.RemovePeers = missing(want.Peers, have.Peers)
	}
	ops.sort()
	return ops
}

func (o *Ops) sort() {
	slices.SortFunc(o.SetPeers, func(a, b Peer) int { return compareKeys(a.Key, b.Key) })
	slices.SortFunc(o.AllowedIPs, func(a, b AllowedIP) int {
		return cmp.Or(compareKeys(a.Peer, b.Peer), ComparePrefixes(a.Prefix, b.Prefix))
	})
	slices.SortFunc(o.SetEntries, func(a, b PrefixEntry) int {
		return cmp.Or(cmp.Compare(remote(a), remote(b)), ComparePrefixes(a.Prefix, b.Prefix))
	})
	slices.SortFunc(o.DeleteEntries, ComparePrefixes)
	slices.SortFunc(o.Orphans, ComparePrefixes)
	slices.SortFunc(o.RemovePeers, compareKeys)
}

// remote is 0 for what is local and comes first: to a peer the datapath encrypts only what it knows to
// come from here.
func remote(e PrefixEntry) int {
	if e.Entry.Flags&cluster.FlagLocal != 0 {
		return 0
	}
	return 1
}

// LocalEntries returns how many entries at the beginning of SetEntries are local.
func (o Ops) LocalEntries() int {
	n := slices.IndexFunc(o.SetEntries, func(e PrefixEntry) bool { return remote(e) == 1 })
	if n < 0 {
		return len(o.SetEntries)
	}
	return n
}

// Apply carries out the operations on a state, as an obedient kernel would.
func (s State) Apply(ops Ops) {
	for _, peer := range ops.SetPeers {
		s.Peers[peer.Key] = peer
	}
	for _, ip := range ops.AllowedIPs {
		s.AllowedIPs[ip.Prefix] = ip.Peer
	}
	for _, e := range ops.SetEntries {
		s.Entries[e.Prefix] = e.Entry
	}
	for _, prefix := range ops.DeleteEntries {
		delete(s.Entries, prefix)
	}
	for _, prefix := range ops.Orphans {
		delete(s.AllowedIPs, prefix)
	}
	for _, key := range ops.RemovePeers {
		delete(s.Peers, key)
	}
}

// Restrict returns the part of the state that concerns these prefixes and peers.
func (s State) Restrict(prefixes iter.Seq[netip.Prefix], peers iter.Seq[cluster.PublicKey]) State {
	part := NewState()
	for prefix := range prefixes {
		if key, ok := s.AllowedIPs[prefix]; ok {
			part.AllowedIPs[prefix] = key
		}
		if entry, ok := s.Entries[prefix]; ok {
			part.Entries[prefix] = entry
		}
	}
	for key := range peers {
		if peer, ok := s.Peers[key]; ok {
			part.Peers[key] = peer
		}
	}
	return part
}

// ComparePrefixes orders prefixes by address, then length: IPv4 before IPv6.
func ComparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

func compareKeys(a, b cluster.PublicKey) int { return bytes.Compare(a[:], b[:]) }

// changed yields what want has and have has not, or has otherwise.
func changed[K, V comparable](want, have map[K]V) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for k, v := range want {
			if old, ok := have[k]; (!ok || old != v) && !yield(k, v) {
				return
			}
		}
	}
}

// missing returns the keys that have has and want has not.
func missing[K comparable, V any](want, have map[K]V) []K {
	return slices.Collect(func(yield func(K) bool) {
		for k := range maps.Keys(have) {
			if _, ok := want[k]; !ok && !yield(k) {
				return
			}
		}
	})
}
