package wireguard

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"warren/internal/cluster"
	"warren/internal/plan"
)

// SetPeers adds peers, and gives those that are there their endpoint (again). A peer without a valid
// endpoint keeps the one it has. Allowed IPs stay as they are.
//
// This and the next three methods may be repeated. They carry out what they can, and the error joins
// what they could not, each part naming its peer: ErrNoDevice, ErrZeroKey, ErrOwnKey, or the errno.
func (d *Device) SetPeers(peers []plan.Peer) error {
	steps := make([]step, len(peers))
	for i, peer := range peers {
		steps[i] = setPeer(peer)
	}
	return d.apply(steps)
}

// GiveIPs gives prefixes to peers, in order. WireGuard takes a prefix from whoever had it in the same
// instant, so that a move loses no packet. A peer that is not there gets nothing, without an error.
func (d *Device) GiveIPs(ips []plan.AllowedIP) error {
	var steps []step
	for len(ips) > 0 {
		key := ips[0].Peer
		var prefixes []netip.Prefix
		for len(ips) > 0 && ips[0].Peer == key && len(prefixes) < batchIPs {
			prefixes = append(prefixes, ips[0].Prefix)
			ips = ips[1:]
		}
		steps = append(steps, giveIPs(key, prefixes))
	}
	return d.apply(steps)
}

// OrphanIPs takes prefixes from whoever has them. WireGuard has no such request that wgctrl knows of,
// so they go to a throw-away peer, and that peer goes.
func (d *Device) OrphanIPs(prefixes []netip.Prefix) error {
	var steps []step
	for chunk := range slices.Chunk(prefixes, batchIPs) {
		throwAway, err := cluster.NewPrivateKey()
		if err != nil {
			return fmt.Errorf("change peers of %s: make a throw-away key: %w", d.name, err)
		}
		steps = append(steps, orphanIPs(chunk, throwAway.Public()))
	}
	return d.apply(steps)
}

// RemovePeers removes peers, with the allowed IPs they still have. One that is not there is no error.
func (d *Device) RemovePeers(keys []cluster.PublicKey) error {
	steps := make([]step, len(keys))
	for i, key := range keys {
		steps[i] = removePeer(key)
	}
	return d.apply(steps)
}

// step is a change that goes to the device in one request. A device carries out the entries of a
// request in order.
type step struct {
	// what is tried, for errors.
	what string
	// key is refused when it is zero or this node's own, if guarded: to remove one does no harm.
	key     cluster.PublicKey
	guarded bool
	// peers has at most two entries and batchIPs prefixes.
	peers []wgtypes.PeerConfig
}

func setPeer(peer plan.Peer) step {
	noKeepalive := time.Duration(0)
	config := wgtypes.PeerConfig{PublicKey: wgtypes.Key(peer.Key), PersistentKeepaliveInterval: &noKeepalive}
	if peer.Endpoint.IsValid() {
		config.Endpoint = net.UDPAddrFromAddrPort(peer.Endpoint)
	}
	return step{
		what:    fmt.Sprintf("set peer %s (node %s) at %s", peer.Key.Short(), peer.Node, peer.Endpoint),
		key:     peer.Key,
		guarded: true,
		peers:   []wgtypes.PeerConfig{config},
	}
}

// giveIPs is never one entry with setPeer: a userspace device starts a new peer when the entry
// ends, and drops what it routes to a peer that has not started.
func giveIPs(key cluster.PublicKey, prefixes []netip.Prefix) step {
	return step{
		what:    fmt.Sprintf("give %s to peer %s", count(prefixes), key.Short()),
		key:     key,
		guarded: true,
		peers:   []wgtypes.PeerConfig{{PublicKey: wgtypes.Key(key), UpdateOnly: true, AllowedIPs: networks(prefixes)}},
	}
}

// orphanIPs is two entries for one key: an entry that says "remove" ignores its prefixes.
func orphanIPs(prefixes []netip.Prefix, throwAway cluster.PublicKey) step {
	return step{
		what: "take " + count(prefixes) + " from their peers",
		peers: []wgtypes.PeerConfig{
			{PublicKey: wgtypes.Key(throwAway), AllowedIPs: networks(prefixes)},
			{PublicKey: wgtypes.Key(throwAway), Remove: true},
		},
	}
}

func removePeer(key cluster.PublicKey) step {
	return step{
		what:  "remove peer " + key.Short(),
		peers: []wgtypes.PeerConfig{{PublicKey: wgtypes.Key(key), Remove: true}},
	}
}

func networks(prefixes []netip.Prefix) []net.IPNet {
	all := make([]net.IPNet, len(prefixes))
	for i, prefix := range prefixes {
		all[i] = networkOf(prefix)
	}
	return all
}

// count names a single prefix, and counts several.
func count(prefixes []netip.Prefix) string {
	if len(prefixes) == 1 {
		return prefixes[0].String()
	}
	return fmt.Sprintf("%d prefixes", len(prefixes))
}
