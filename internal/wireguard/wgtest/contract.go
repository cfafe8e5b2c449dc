// Package wgtest is the contract of WireGuard devices as a test: what package wireguard relies on,
// held against the fake, the userspace tunnel and the kernel alike. It also has the network
// namespaces that the tests of real devices live in.
//
//	wgtest.Contract(t, func(t *testing.T) *wireguard.Device { … }) // a fresh device each time
package wgtest

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"warren/internal/cluster"
	"warren/internal/plan"
	"warren/internal/wireguard"
)

// Opener returns a device that has no key and no peer yet, and removes it when the test ends.
type Opener func(t *testing.T) *wireguard.Device

// Contract tests one kind of device. Devices need no address and send nothing.
func Contract(t *testing.T, open Opener) {
	t.Run("configure", func(t *testing.T) { configure(t, open) })
	t.Run("peers", func(t *testing.T) { peers(t, open) })
	t.Run("refused keys", func(t *testing.T) { refusedKeys(t, open) })
	t.Run("many peers", func(t *testing.T) { manyPeers(t, open(t)) })
	t.Run("owners", func(t *testing.T) { owners(t, open(t)) })
}

// settings is what Configure sets.
var settings = plan.Device{Port: 51880, Mark: 0x10}

func configure(t *testing.T, open Opener) {
	first, second := NewKey(t), NewKey(t)
	tests := []struct {
		name string
		do   func(*wireguard.Device) error
		want wireguard.Actual
	}{
		{name: "key, port and mark",
			do:   func(d *wireguard.Device) error { return d.Configure(settings, first) },
			want: wireguard.Actual{PublicKey: first.Public(), Port: 51880, Mark: 0x10}},
		{name: "the same again",
			do: func(d *wireguard.Device) error {
				return errors.Join(d.Configure(settings, first), d.Configure(settings, first))
			},
			want: wireguard.Actual{PublicKey: first.Public(), Port: 51880, Mark: 0x10}},
		{name: "another key, port and mark",
			do: func(d *wireguard.Device) error {
				return errors.Join(d.Configure(settings, first), d.Configure(plan.Device{Port: 51881, Mark: 0x20}, second))
			},
			want: wireguard.Actual{PublicKey: second.Public(), Port: 51881, Mark: 0x20}},
		{name: "peers stay, but for one with the new key",
			do: func(d *wireguard.Device) error {
				return errors.Join(
					d.Configure(settings, first),
					d.SetPeers([]plan.Peer{peerA, {Key: second.Public(), Endpoint: peerB.Endpoint}}),
					d.Configure(settings, second))
			},
			want: wireguard.Actual{PublicKey: second.Public(), Port: 51880, Mark: 0x10, Peers: []wireguard.PeerState{{Peer: peerA}}}},
		{name: "no mark",
			do: func(d *wireguard.Device) error {
				return errors.Join(d.Configure(settings, first), d.Configure(plan.Device{Port: 51880}, first))
			},
			want: wireguard.Actual{PublicKey: first.Public(), Port: 51880}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			device := open(t)
			if before := read(t, device); !before.PublicKey.IsZero() || len(before.Peers) > 0 {
				t.Fatalf("a new device has a key or peers: %+v", before)
			}
			if err := test.do(device); err != nil {
				t.Fatal(err)
			}
			if diff := diffActual(test.want, read(t, device)); diff != "" {
				t.Errorf("device (-want +got):\n%s", diff)
			}
		})
	}
}

// Peers of the tables; their keys are in order, as Read returns them.
var (
	peerA = plan.Peer{Key: cluster.PublicKey{1}, Endpoint: netip.MustParseAddrPort("192.0.2.1:51880")}
	peerB = plan.Peer{Key: cluster.PublicKey{2}, Endpoint: netip.MustParseAddrPort("[2001:db8::2]:51880")}
)

func peers(t *testing.T, open Opener) {
	p := netip.MustParsePrefix
	both := []plan.Peer{peerA, peerB}
	give := func(key cluster.PublicKey, prefixes ...string) []plan.AllowedIP {
		var ips []plan.AllowedIP
		for _, prefix := range prefixes {
			ips = append(ips, plan.AllowedIP{Prefix: p(prefix), Peer: key})
		}
		return ips
	}
	tests := []struct {
		name string
		do   func(*wireguard.Device) error
		want []wireguard.PeerState
	}{
		{name: "added",
			do:   func(d *wireguard.Device) error { return d.SetPeers(both) },
			want: []wireguard.PeerState{{Peer: peerA}, {Peer: peerB}}},
		{name: "added without endpoint",
			do:   func(d *wireguard.Device) error { return d.SetPeers([]plan.Peer{{Key: peerA.Key}}) },
			want: []wireguard.PeerState{{Peer: plan.Peer{Key: peerA.Key}}}},
		{name: "endpoint pinned to another family, prefixes stay",
			do: func(d *wireguard.Device) error {
				return errors.Join(d.SetPeers(both), d.GiveIPs(give(peerA.Key, "10.0.0.1/32")),
					d.SetPeers([]plan.Peer{{Key: peerA.Key, Endpoint: peerB.Endpoint}}))
			},
			want: []wireguard.PeerState{
				{Peer: plan.Peer{Key: peerA.Key, Endpoint: peerB.Endpoint}, AllowedIPs: []netip.Prefix{p("10.0.0.1/32")}},
				{Peer: peerB}}},
		{name: "prefixes of both families",
			do: func(d *wireguard.Device) error {
				return errors.Join(d.SetPeers(both), d.GiveIPs(give(peerA.Key, "fd00::1/128", "10.0.0.0/24", "10.0.0.1/32")))
			},
			want: []wireguard.PeerState{
				{Peer: peerA, AllowedIPs: []netip.Prefix{p("10.0.0.0/24"), p("10.0.0.1/32"), p("fd00::1/128")}},
				{Peer: peerB}}},
		{name: "a prefix moves, the one around it stays",
			do: func(d *wireguard.Device) error {
				return errors.Join(d.SetPeers(both), d.GiveIPs(give(peerA.Key, "10.0.0.0/24", "10.0.0.1/32")),
					d.GiveIPs(give(peerB.Key, "10.0.0.1/32")))
			},
			want: []wireguard.PeerState{
				{Peer: peerA, AllowedIPs: []netip.Prefix{p("10.0.0.0/24")}},
				{Peer: peerB, AllowedIPs: []netip.Prefix{p("10.0.0.1/32")}}}},
		{name: "the last of several owners in one call counts",
			do: func(d *wireguard.Device) error {
				return errors.Join(d.SetPeers(both), d.GiveIPs(append(append(give(peerA.Key, "10.0.0.1/32"),
					give(peerB.Key, "10.0.0.1/32")...), give(peerA.Key, "10.0.0.1/32")...)))
			},
			want: []wireguard.PeerState{
				{Peer: peerA, AllowedIPs: []netip.Prefix{p("10.0.0.1/32")}},
				{Peer: peerB}}},
		{name: "a peer that is not there takes nothing",
			do: func(d *wireguard.Device) error {
				return errors.Join(d.SetPeers(both[:1]), d.GiveIPs(give(peerA.Key, "10.0.0.1/32")), d.GiveIPs(give(peerB.Key, "10.0.0.1/32")))
			},
			want: []wireguard.PeerState{{Peer: peerA, AllowedIPs: []netip.Prefix{p("10.0.0.1/32")}}}},
		{name: "orphaned, and nothing is left of the throw-away peer",
			do: func(d *wireguard.Device) error {
				return errors.Join(d.SetPeers(both), d.GiveIPs(give(peerA.Key, "10.0.0.1/32", "10.0.0.2/32")),
					d.OrphanIPs([]netip.Prefix{p("10.0.0.2/32"), p("10.0.0.3/32")}))
			},
			want: []wireguard.PeerState{
				{Peer: peerA, AllowedIPs: []netip.Prefix{p("10.0.0.1/32")}},
				{Peer: peerB}}},
		{name: "removed with its prefixes, twice",
			do: func(d *wireguard.Device) error {
				remove := []cluster.PublicKey{peerA.Key}
				return errors.Join(d.SetPeers(both), d.GiveIPs(give(peerA.Key, "10.0.0.1/32")), d.RemovePeers(remove), d.RemovePeers(remove))
			},
			want: []wireguard.PeerState{{Peer: peerB}}},
		{name: "nothing to do",
			do: func(d *wireguard.Device) error {
				return errors.Join(d.SetPeers(nil), d.GiveIPs(nil), d.OrphanIPs(nil), d.RemovePeers(nil))
			}},
	}
	device := open(t)
	if err := device.Configure(settings, NewKey(t)); err != nil {
		t.Fatal(err)
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			removeAll(t, device)
			if err := test.do(device); err != nil {
				t.Fatal(err)
			}
			if diff := diffPeers(test.want, read(t, device).Peers); diff != "" {
				t.Errorf("peers (-want +got):\n%s", diff)
			}
		})
	}
}

func refusedKeys(t *testing.T, open Opener) {
	key := NewKey(t)
	tests := []struct {
		name    string
		refused cluster.PublicKey
		want    error
	}{
		{name: "zero", want: wireguard.ErrZeroKey},
		{name: "own", refused: key.Public(), want: wireguard.ErrOwnKey},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			device := open(t)
			if err := device.Configure(settings, key); err != nil {
				t.Fatal(err)
			}
			err := device.SetPeers([]plan.Peer{{Key: test.refused, Node: cluster.NodeID{Cluster: "default", Name: "n9"}}, peerA})
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), "default/n9") {
				t.Errorf("SetPeers: %v, want %v and the node's name", err, test.want)
			}
			prefix := netip.MustParsePrefix("10.0.0.1/32")
			err = device.GiveIPs([]plan.AllowedIP{{Prefix: prefix, Peer: peerA.Key}, {Prefix: prefix, Peer: test.refused}})
			if !errors.Is(err, test.want) {
				t.Errorf("GiveIPs: %v, want %v", err, test.want)
			}
			if err := device.RemovePeers([]cluster.PublicKey{test.refused}); err != nil {
				t.Errorf("RemovePeers: %v", err)
			}
			want := []wireguard.PeerState{{Peer: peerA, AllowedIPs: []netip.Prefix{prefix}}}
			if diff := diffPeers(want, read(t, device).Peers); diff != "" {
				t.Errorf("the others were hurt (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("no private key", func(t *testing.T) {
		if err := open(t).Configure(settings, cluster.PrivateKey{}); !errors.Is(err, wireguard.ErrZeroKey) {
			t.Errorf("Configure: %v, want %v", err, wireguard.ErrZeroKey)
		}
	})
	t.Run("no port", func(t *testing.T) {
		if err := open(t).Configure(plan.Device{Mark: 0x10}, key); err == nil || !strings.Contains(err.Error(), "port 0") {
			t.Errorf("Configure: %v, want a complaint about port 0", err)
		}
	})
}

// manyPeers needs many requests: peers with three prefixes each, then one with over a thousand.
func manyPeers(t *testing.T, device *wireguard.Device) {
	const many = 400
	var set []plan.Peer
	var give, move []plan.AllowedIP
	var keys []cluster.PublicKey
	for i := range many {
		peer := plan.Peer{Key: cluster.PublicKey{1, byte(i >> 8), byte(i)}, Endpoint: peerA.Endpoint}
		set, keys = append(set, peer), append(keys, peer.Key)
		for _, text := range []string{"10.%d.%d.0/24", "172.16.%d.%d/32", "fd00::%x:%x/128"} {
			prefix := netip.MustParsePrefix(fmt.Sprintf(text, i>>8, i&0xff))
			give = append(give, plan.AllowedIP{Prefix: prefix, Peer: peer.Key})
			move = append(move, plan.AllowedIP{Prefix: prefix, Peer: set[0].Key})
		}
	}
	err := errors.Join(device.Configure(settings, NewKey(t)), device.SetPeers(set), device.GiveIPs(give))
	if err != nil {
		t.Fatal(err)
	}
	assertSizes(t, device, "after all were set", many, 3)
	if err := device.GiveIPs(move); err != nil {
		t.Fatal(err)
	}
	assertSizes(t, device, "after one got everything", many, 3*many)
	if err := device.RemovePeers(keys[1:]); err != nil {
		t.Fatal(err)
	}
	assertSizes(t, device, "after all others went", 1, 3*many)
	prefixes := make([]netip.Prefix, len(move))
	for i, ip := range move {
		prefixes[i] = ip.Prefix
	}
	if err := device.OrphanIPs(prefixes); err != nil {
		t.Fatal(err)
	}
	assertSizes(t, device, "after everything was taken", 1, 0)
}

// assertSizes looks at the number of peers, and of prefixes of the first.
func assertSizes(t *testing.T, device *wireguard.Device, when string, peers, prefixes int) {
	t.Helper()
	actual := read(t, device)
	if len(actual.Peers) != peers || len(actual.Peers[0].AllowedIPs) != prefixes {
		t.Fatalf("%s: %d peers, the first with %d prefixes; want %d and %d",
			when, len(actual.Peers), len(actual.Peers[0].AllowedIPs), peers, prefixes)
	}
}

// NewKey returns a new private key.
func NewKey(t testing.TB) cluster.PrivateKey {
	t.Helper()
	key, err := cluster.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// failer is a *testing.T or a *rapid.T.
type failer interface {
	Helper()
	Fatal(args ...any)
}

func read(t failer, device *wireguard.Device) wireguard.Actual {
	t.Helper()
	actual, err := device.Read()
	if err != nil {
		t.Fatal(err)
	}
	return actual
}

// removeAll makes the device empty.
func removeAll(t failer, device *wireguard.Device) {
	t.Helper()
	var keys []cluster.PublicKey
	for _, peer := range read(t, device).Peers {
		keys = append(keys, peer.Peer.Key)
	}
	if err := device.RemovePeers(keys); err != nil {
		t.Fatal(err)
	}
}

func diffActual(want, got wireguard.Actual) string {
	return cmp.Diff(want, got, comparing, cmpopts.IgnoreFields(wireguard.Actual{}, "Engine"))
}

func diffPeers(want, got []wireguard.PeerState) string { return cmp.Diff(want, got, comparing) }

// comparing: netip's types have unexported fields, and nil is an empty list.
var comparing = cmp.Options{cmpopts.EquateComparable(netip.Prefix{}, netip.AddrPort{}), cmpopts.EquateEmpty()}
