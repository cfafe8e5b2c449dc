package wgtest

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"warren/internal/cluster"
	"warren/internal/plan"
	"warren/internal/wireguard"
)

// model is what a device has to do, naively.
type model struct {
	peers  map[cluster.PublicKey]netip.AddrPort
	owners map[netip.Prefix]cluster.PublicKey
}

func newModel() model {
	return model{map[cluster.PublicKey]netip.AddrPort{}, map[netip.Prefix]cluster.PublicKey{}}
}

func (m model) setPeers(peers []plan.Peer) {
	for _, peer := range peers {
		m.peers[peer.Key] = peer.Endpoint
	}
}

func (m model) giveIPs(ips []plan.AllowedIP) {
	for _, ip := range ips {
		if _, there := m.peers[ip.Peer]; there {
			m.owners[ip.Prefix] = ip.Peer
		}
	}
}

func (m model) orphanIPs(prefixes []netip.Prefix) {
	for _, prefix := range prefixes {
		delete(m.owners, prefix)
	}
}

func (m model) removePeers(keys []cluster.PublicKey) {
	for _, key := range keys {
		delete(m.peers, key)
		maps.DeleteFunc(m.owners, func(_ netip.Prefix, owner cluster.PublicKey) bool { return owner == key })
	}
}

// owners: after any sequence of operations the device is what the model is.
func owners(t *testing.T, device *wireguard.Device) {
	if err := device.Configure(settings, NewKey(t)); err != nil {
		t.Fatal(err)
	}
	keys := rapid.Map(rapid.ByteRange(1, 5), func(b byte) cluster.PublicKey { return cluster.PublicKey{b} })
	prefixes := rapid.Map(rapid.SampledFrom([]string{
		"10.0.0.0/8", "10.0.0.0/24", "10.0.0.1/32", "10.0.0.2/32", "10.0.1.0/24", "fd00::/64", "fd00::1/128", "fd01::1/128",
	}), netip.MustParsePrefix)
	endpoints := rapid.SampledFrom([]netip.AddrPort{peerA.Endpoint, peerB.Endpoint})
	peers := rapid.Custom(func(t *rapid.T) plan.Peer {
		return plan.Peer{Key: keys.Draw(t, "key"), Endpoint: endpoints.Draw(t, "endpoint")}
	})
	ips := rapid.Custom(func(t *rapid.T) plan.AllowedIP {
		return plan.AllowedIP{Prefix: prefixes.Draw(t, "prefix"), Peer: keys.Draw(t, "owner")}
	})
	rapid.Check(t, func(t *rapid.T) {
		removeAll(t, device)
		want := newModel()
		t.Repeat(map[string]func(*rapid.T){
			"set peers": func(t *rapid.T) {
				some := rapid.SliceOfN(peers, 1, 4).Draw(t, "peers")
				want.setPeers(some)
				must(t, device.SetPeers(some))
			},
			"give IPs": func(t *rapid.T) {
				some := rapid.SliceOfN(ips, 1, 6).Draw(t, "ips")
				want.giveIPs(some)
				must(t, device.GiveIPs(some))
			},
			"orphan IPs": func(t *rapid.T) {
				some := rapid.SliceOfN(prefixes, 1, 3).Draw(t, "orphans")
				want.orphanIPs(some)
				must(t, device.OrphanIPs(some))
			},
			"remove peers": func(t *rapid.T) {
				some := rapid.SliceOfN(keys, 1, 2).Draw(t, "keys")
				want.removePeers(some)
				must(t, device.RemovePeers(some))
			},
			"": func(t *rapid.T) {
				got := modelOf(read(t, device))
				if diff := cmp.Diff(want, got, cmp.AllowUnexported(model{}), cmpopts.EquateComparable(netip.AddrPort{}, netip.Prefix{})); diff != "" {
					t.Fatalf("device (-model +got):\n%s", diff)
				}
			},
		})
	})
}

func modelOf(actual wireguard.Actual) model {
	m := newModel()
	for _, peer := range actual.Peers {
		m.peers[peer.Peer.Key] = peer.Peer.Endpoint
		for _, prefix := range peer.AllowedIPs {
			m.owners[prefix] = peer.Peer.Key
		}
	}
	return m
}

// removeAll makes the device empty, so that the next sequence starts from nothing.
func removeAll(t *rapid.T, device *wireguard.Device) {
	var keys []cluster.PublicKey
	for _, peer := range read(t, device).Peers {
		keys = append(keys, peer.Peer.Key)
	}
	must(t, device.RemovePeers(keys))
}

func must(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
