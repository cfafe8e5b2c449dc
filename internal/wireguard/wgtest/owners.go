package wgtest

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
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

// operation is one call, on the device and on the model.
type operation struct {
	name  string
	apply func(*wireguard.Device) error
	model func(model)
}

func (o operation) String() string { return o.name }

// operations draws calls about five peers and eight prefixes, some of them inside others.
func operations() *rapid.Generator[[]operation] {
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
	return rapid.SliceOfN(rapid.OneOf(
		operationsOf("set peers", rapid.SliceOfN(peers, 1, 4), (*wireguard.Device).SetPeers, model.setPeers),
		operationsOf("give IPs", rapid.SliceOfN(ips, 1, 6), (*wireguard.Device).GiveIPs, model.giveIPs),
		operationsOf("orphan IPs", rapid.SliceOfN(prefixes, 1, 3), (*wireguard.Device).OrphanIPs, model.orphanIPs),
		operationsOf("remove peers", rapid.SliceOfN(keys, 1, 2), (*wireguard.Device).RemovePeers, model.removePeers),
	), 1, 12)
}

func operationsOf[A any](
	name string, arguments *rapid.Generator[[]A], apply func(*wireguard.Device, []A) error, inModel func(model, []A),
) *rapid.Generator[operation] {
	return rapid.Map(arguments, func(argument []A) operation {
		return operation{
			name:  fmt.Sprintf("%s %v", name, argument),
			apply: func(device *wireguard.Device) error { return apply(device, argument) },
			model: func(m model) { inModel(m, argument) },
		}
	})
}

// owners: after any sequence of operations the device is what the model is.
func owners(t *testing.T, device *wireguard.Device) {
	if err := device.Configure(settings, NewKey(t)); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		removeAll(t, device)
		want := newModel()
		for _, operation := range operations().Draw(t, "operations") {
			operation.model(want)
			if err := operation.apply(device); err != nil {
				t.Fatalf("%s: %v", operation, err)
			}
		}
		got := modelOf(read(t, device))
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(model{}), comparing); diff != "" {
			t.Fatalf("device (-model +got):\n%s", diff)
		}
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
