package plan

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"

	"warren/internal/cluster"
	"warren/internal/identity"
	"warren/internal/ipcache"
	"warren/internal/probe"
)

// State is a tunnel or the datapath, or both, as they should be or as they are.
type State struct {
	// Peers of one WireGuard device by public key.
	Peers map[cluster.PublicKey]Peer
	// AllowedIPs has for every prefix the one peer that may send from it and is sent to.
	AllowedIPs map[netip.Prefix]cluster.PublicKey
	// Entries are the datapath's maps.
	Entries map[netip.Prefix]Entry
}

// NewState returns an empty state.
func NewState() State { return newState(0, 0) }

// newState has room for as many peers and prefixes, since maps that grow are copied again and again.
func newState(peers, prefixes int) State {
	return State{
		Peers:      make(map[cluster.PublicKey]Peer, peers),
		AllowedIPs: make(map[netip.Prefix]cluster.PublicKey, prefixes),
		Entries:    make(map[netip.Prefix]Entry, prefixes),
	}
}

// Clone returns a copy that shares nothing.
func (s State) Clone() State {
	return State{Peers: maps.Clone(s.Peers), AllowedIPs: maps.Clone(s.AllowedIPs), Entries: maps.Clone(s.Entries)}
}

// Routes is how admitted nodes are reached: what turns an IPCache entry into a peer and a device.
type Routes struct {
	// Peers by public key. A node that replaces its key is here with both; see Peer.In for the port.
	Peers map[cluster.PublicKey]Peer
	// Candidates are the peers that have no addresses, since their key is held back.
	Candidates map[cluster.PublicKey]bool
	// ByPair finds the key in use of the node with a (tunnel endpoint, key) pair.
	ByPair map[cluster.Pair]cluster.PublicKey
	// Twins has for each key of a node with two the other one.
	Twins map[cluster.PublicKey]cluster.PublicKey
	// Underlay is the index of the underlay device towards a tunnel endpoint; an endpoint that
	// is not here is reached by the primary one.
	Underlay map[netip.Addr]uint32
	// Paths has what is known of the way to a peer; the zero Path stands for one that is not here.
	Paths map[cluster.PublicKey]Path
}

// NewRoutes derives the routes to the admitted peers as seen from self, without devices. It keeps the paths.
func NewRoutes(self *cluster.Node, peers []*Record, paths map[cluster.PublicKey]Path) Routes {
	routes := Routes{
		Peers:      make(map[cluster.PublicKey]Peer, len(peers)),
		Candidates: map[cluster.PublicKey]bool{},
		ByPair:     make(map[cluster.Pair]cluster.PublicKey, len(peers)),
		Twins:      map[cluster.PublicKey]cluster.PublicKey{},
		Paths:      paths,
	}
	owners := make(map[cluster.Pair]*cluster.Node, len(peers))
	for _, record := range peers {
		node := &record.Node
		live := peersOf(self, node)
		used, _ := keyInUse(node, paths)
		for _, peer := range live {
			routes.Peers[peer.Key] = peer
			pair := cluster.Pair{Endpoint: peer.Endpoint.Addr(), Key: cluster.KeyIDOf(peer.Epoch)}
			if owner, taken := owners[pair]; !taken || stronger(node, owner) {
				owners[pair], routes.ByPair[pair] = node, used.Public
			}
		}
		if len(live) == 2 {
			routes.Twins[live[0].Key], routes.Twins[live[1].Key] = live[1].Key, live[0].Key
		}
	}
	return routes
}

// peersOf returns the node as a peer of self by each of its live keys; none if self cannot reach it.
func peersOf(self, node *cluster.Node) []Peer {
	endpoint, reachable := EndpointOf(self, node)
	if !reachable {
		return nil
	}
	var peers []Peer
	for _, key := range LiveKeys(node) {
		peers = append(peers, Peer{Key: key.Public, Node: node.ID, Epoch: key.Epoch, Endpoint: netip.AddrPortFrom(endpoint, key.Port)})
	}
	return peers
}

// addCandidates adds peers that can be probed and have no addresses.
func (r Routes) addCandidates(self *cluster.Node, candidates []*Record) {
	for _, record := range candidates {
		for _, peer := range peersOf(self, &record.Node) {
			r.Peers[peer.Key], r.Candidates[peer.Key] = peer, true
		}
	}
}

// stronger reports which of two nodes with one address, such as a machine and its replacement, owns the
// address in the IPCache.
func stronger(a, b *cluster.Node) bool {
	return cmp.Or(cmp.Compare(issued(b), issued(a)), cmp.Compare(Resource(a.ID), Resource(b.ID))) < 0
}

// Entry returns what the datapath has to know of an IPCache entry.
func (r Routes) Entry(entry ipcache.Entry) Entry {
	var path Path
	if key, ok := r.Peer(entry); ok {
		path = r.Paths[key]
	}
	return Entry{
		Identity: uint32(entry.Identity),
		Endpoint: entry.Pair.Endpoint,
		Key:      entry.Pair.Key,
		Flags:    entry.Flags,
		HasPair:  entry.HasPair,
		Underlay: r.Underlay[entry.Pair.Endpoint],
		MTU:      path.MTU,
		Send:     path.Send,
		Enforce:  path.Enforce,
		Slot:     path.Slot,
		Silent:   path.Silent && entry.Flags&cluster.FlagNode != 0,
	}
}

// Owner returns the peer that the prefix of the entry belongs to in the slot's device.
func (r Routes) Owner(entry ipcache.Entry, slot Slot) (key cluster.PublicKey, ok bool) {
	key, ok = r.Peer(entry)
	if ok && !slot.Holds(r.Peers[key].Epoch) {
		key, ok = r.Twins[key]
	}
	return key, ok
}

// Peer returns the key by which what the entry stands for is reached. ok is false for what is
// local, for what shall not be encrypted, and for a pair that no admitted node has: the datapath then
// hands packets to a device that refuses them, so that such a pair fails closed.
func (r Routes) Peer(entry ipcache.Entry) (key cluster.PublicKey, ok bool) {
	if !entry.HasPair || entry.Pair.Key == cluster.NoEncryption || entry.Flags&cluster.FlagLocal != 0 {
		return cluster.PublicKey{}, false
	}
	key, ok = r.ByPair[entry.Pair]
	return key, ok
}

// addPeer adds a peer with its probe address, at which it can be reached whatever else it may have.
func (s State) addPeer(key cluster.PublicKey, peer Peer) {
	s.Peers[key] = peer
	s.AllowedIPs[ProbePrefix(key)] = key
}

// ProbePrefix is the allowed IP that only the peer with that key has.
func ProbePrefix(key cluster.PublicKey) netip.Prefix { return cluster.HostPrefix(probe.Address(key)) }

// BuildEntries returns the datapath that the entries, about so many, call for. An API server outside of the cluster has no
// part in it: the programs take what they know for the cluster's, and would refuse in strict mode what has no pair.
func BuildEntries(routes Routes, entries iter.Seq2[netip.Prefix, ipcache.Entry], size int) State {
	want := State{Entries: make(map[netip.Prefix]Entry, size)}
	for prefix, entry := range entries {
		if !outside(entry) {
			want.Entries[prefix] = routes.Entry(entry)
		}
	}
	return want
}

func outside(entry ipcache.Entry) bool { return !entry.HasPair && identity.Outside(entry.Labels) }

// BuildTunnel returns the tunnel that peers and entries, about so many, call for in a slot.
func BuildTunnel(routes Routes, slot Slot, peers iter.Seq[cluster.PublicKey], entries iter.Seq2[netip.Prefix, ipcache.Entry], size int) State {
	want := newState(len(routes.Peers), size)
	for key := range peers {
		if peer, ok := routes.Peers[key]; ok && slot.Holds(peer.Epoch) {
			want.addPeer(key, peer.In(slot))
		}
	}
	for prefix, entry := range entries {
		if key, ok := routes.Owner(entry, slot); ok {
			want.AllowedIPs[prefix] = key
		}
	}
	return want
}
