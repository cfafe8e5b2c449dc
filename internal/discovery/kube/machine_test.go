package kube

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"warren/internal/cluster"
	"warren/internal/discovery"
	"warren/internal/discovery/record/recordtest"
)

func TestDecodeNode(t *testing.T) {
	for _, test := range []struct {
		name, object string
		addresses    []netip.Addr
		podCIDRs     []netip.Prefix
	}{
		{name: "nothing yet", object: `{"metadata":{"name":"n1"}}`},
		{name: "two families, in order", object: `{"spec":{"podCIDR":"10.244.1.0/24","podCIDRs":["10.244.1.0/24","fd00:1::/64"]},
			"status":{"addresses":[{"type":"Hostname","address":"n1"},{"type":"InternalIP","address":"fd00::1"},{"type":"ExternalIP","address":"198.51.100.1"},{"type":"InternalIP","address":"10.0.0.1"}]}}`,
			addresses: addrs("fd00::1", "10.0.0.1"), podCIDRs: prefixes("10.244.1.0/24", "fd00:1::/64")},
		{name: "addresses that cannot be reached, are none, or come twice", object: `{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"},{"type":"InternalIP","address":"n1"},
			{"type":"InternalIP","address":"::ffff:10.0.0.1"},{"type":"InternalIP","address":"10.0.0.1"}]}}`,
			addresses: addrs("10.0.0.1")},
		{name: "a podCIDR that is not masked, and one that is everything", object: `{"spec":{"podCIDRs":["10.244.1.7/24","::/0"]}}`, podCIDRs: prefixes("10.244.1.0/24")},
		{name: "what a Node cannot be", object: `{"spec":"x","status":7}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := decodeNode(parse(t, test.object), node{})
			want := node{addresses: test.addresses, podCIDRs: test.podCIDRs}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(node{}), recordtest.SameNode); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestDecodePod(t *testing.T) {
	for _, test := range []struct {
		name, object string
		want         []netip.Addr
	}{
		{"not started", `{"status":{"phase":"Pending"}}`, nil},
		{"running, two families", `{"status":{"phase":"Running","podIPs":[{"ip":"10.244.1.5"},{"ip":"fd00:1::5"}]}}`, addrs("10.244.1.5", "fd00:1::5")},
		{"about to end", `{"metadata":{"deletionTimestamp":"2026-11-30T00:00:00Z"},"status":{"phase":"Running","podIPs":[{"ip":"10.244.1.5"}]}}`, addrs("10.244.1.5")},
		{"the machine's own network", `{"spec":{"hostNetwork":true},"status":{"phase":"Running","podIPs":[{"ip":"10.0.0.1"}]}}`, nil},
		{"ended well", `{"status":{"phase":"Succeeded","podIPs":[{"ip":"10.244.1.5"}]}}`, nil},
		{"ended badly", `{"status":{"phase":"Failed","podIPs":[{"ip":"10.244.1.5"}]}}`, nil},
		{"an address that is none", `{"status":{"podIPs":[{"ip":""},{"ip":"10.244.1.5"}]}}`, addrs("10.244.1.5")},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := decodePod(parse(t, test.object), nil)
			if diff := cmp.Diff(test.want, got, recordtest.SameNode); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestMachineOf(t *testing.T) {
	for _, test := range []struct {
		name     string
		podCIDRs []netip.Prefix
		pods     map[string][]netip.Addr
		want     []netip.Prefix
	}{
		{"a podCIDR, no pods", prefixes("10.244.1.0/24"), nil, prefixes("10.244.1.0/24")},
		{"pods in the podCIDR", prefixes("10.244.1.0/24", "fd00:1::/64"), map[string][]netip.Addr{"a/a": addrs("10.244.1.5", "fd00:1::5"), "a/b": nil}, prefixes("10.244.1.0/24", "fd00:1::/64")},
		{"a pod outside: the podCIDR is not what the network plugin uses", prefixes("10.244.1.0/24"), map[string][]netip.Addr{"a/a": addrs("10.244.1.5"), "a/b": addrs("192.168.7.2")},
			prefixes("10.244.1.5/32", "192.168.7.2/32")},
		{"a second family outside", prefixes("10.244.1.0/24"), map[string][]netip.Addr{"a/a": addrs("10.244.1.5", "fd00:1::5")}, prefixes("10.244.1.5/32", "fd00:1::5/128")},
		{"no podCIDR, neighbours joined", nil, map[string][]netip.Addr{"a/a": addrs("10.1.0.2"), "a/b": addrs("10.1.0.3"), "b/c": addrs("10.1.0.5")}, prefixes("10.1.0.2/31", "10.1.0.5/32")},
		{"a pod with the machine's address", prefixes("10.244.1.0/24"), map[string][]netip.Addr{"a/a": addrs("10.0.0.1")}, prefixes("10.244.1.0/24")},
		{"no podCIDR, no pods", nil, map[string][]netip.Addr{}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := machineOf(node{addresses: addrs("10.0.0.1"), podCIDRs: test.podCIDRs}, test.pods)
			want := discovery.Machine{Addresses: addrs("10.0.0.1"), Prefixes: test.want}
			if diff := cmp.Diff(want, got, recordtest.SameNode); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestAggregate: the result has the same addresses as what went in, is masked, ordered, without overlaps, the same
// whatever the order, and no two of its prefixes could be one.
func TestAggregate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) netip.Prefix {
			n := rapid.ByteRange(0, 63).Draw(t, "n")
			if rapid.Bool().Draw(t, "v6") {
				return netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 15: n}), rapid.IntRange(122, 128).Draw(t, "bits")).Masked()
			}
			return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, n}), rapid.IntRange(26, 32).Draw(t, "bits")).Masked()
		}), 0, 40).Draw(t, "in")
		out := aggregate(in)
		rand.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
		if again := aggregate(in); !slices.Equal(out, again) {
			t.Fatalf("%v and in another order %v", out, again)
		}
		if !slices.IsSortedFunc(out, netip.Prefix.Compare) {
			t.Fatalf("not in order: %v", out)
		}
		covers := func(list []netip.Prefix, addr netip.Addr) int {
			n := 0
			for _, p := range list {
				if p.Contains(addr) {
					n++
				}
			}
			return n
		}
		for n := range byte(64) {
			for _, addr := range []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, n}), netip.AddrFrom16([16]byte{0xfd, 15: n})} {
				if got := covers(out, addr); got > 1 || (got == 1) != (covers(in, addr) > 0) {
					t.Fatalf("%s is %d times in %v, which is of %v", addr, got, out, in)
				}
			}
		}
		for i, a := range out {
			if a != cluster.CanonicalPrefix(a) {
				t.Fatalf("%s is not masked", a)
			}
			for _, b := range out[i+1:] {
				if parent, ok := union(a, b); ok {
					t.Fatalf("%s and %s are %s", a, b, parent)
				}
			}
		}
	})
}
