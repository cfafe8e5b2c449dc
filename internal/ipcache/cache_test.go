package ipcache_test

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warren/internal/cluster"
	"warren/internal/identity"
	"warren/internal/ipcache"
)

var (
	n2 = cluster.NodeID{Cluster: "default", Name: "n2"}
	n3 = cluster.NodeID{Cluster: "default", Name: "n3"}
)

// podCIDR is a fact of n2's record.
func podCIDR(prefix string, key cluster.KeyID) cluster.Fact {
	return cluster.Fact{
		Prefix: netip.MustParsePrefix(prefix), Source: cluster.SourceDirectory, Resource: "node/default/n2",
		Info: cluster.Info{Owner: n2, HasPair: true, Pair: cluster.Pair{Endpoint: netip.MustParseAddr("192.0.2.12"), Key: key}},
	}
}

func changed(deltas []ipcache.Delta) []string {
	var list []string
	for _, delta := range deltas {
		sign := "~"
		switch {
		case delta.Old == nil:
			sign = "+"
		case delta.New == nil:
			sign = "-"
		}
		list = append(list, sign+delta.Prefix.String())
	}
	return list
}

func TestReplace(t *testing.T) {
	tests := map[string]struct {
		then []cluster.Fact
		want []string
	}{
		"the same again":            {[]cluster.Fact{podCIDR("10.2.0.0/24", 1), podCIDR("fd02::/64", 1)}, nil},
		"nothing":                   {nil, []string{"-10.2.0.0/24", "-fd02::/64"}},
		"one less":                  {[]cluster.Fact{podCIDR("fd02::/64", 1)}, []string{"-10.2.0.0/24"}},
		"one more":                  {[]cluster.Fact{podCIDR("10.2.0.0/24", 1), podCIDR("10.9.0.0/24", 1), podCIDR("fd02::/64", 1)}, []string{"+10.9.0.0/24"}},
		"one other, one changed":    {[]cluster.Fact{podCIDR("fd02::/64", 2), podCIDR("fd09::/64", 2)}, []string{"-10.2.0.0/24", "~fd02::/64", "+fd09::/64"}},
		"a prefix in other writing": {[]cluster.Fact{podCIDR("10.2.0.77/24", 1), podCIDR("fd02::7/64", 1)}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cache := ipcache.New()
			cache.Upsert(podCIDR("10.2.0.0/24", 1), podCIDR("fd02::/64", 1))
			for i := range test.then { // Replace sets both itself
				test.then[i].Source, test.then[i].Resource = 0, ""
			}
			deltas := cache.Replace(cluster.SourceDirectory, "node/default/n2", test.then)
			if diff := cmp.Diff(test.want, changed(deltas)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A resource that moves a prefix to itself from another one in one call leaves no gap between.
func TestUpsertIsOneStep(t *testing.T) {
	cache := ipcache.New()
	cache.Upsert(podCIDR("10.2.0.0/24", 1))
	other := podCIDR("10.2.0.0/24", 1)
	other.Resource, other.Info.Owner = "node/default/n1", n3
	back := other
	back.Info.Owner = n2
	if deltas := cache.Upsert(other, back); len(deltas) != 0 {
		t.Errorf("there and back is no change, but: %v", changed(deltas))
	}
}

func TestSlotsAreTheirResources(t *testing.T) {
	cache := ipcache.New()
	cache.Upsert(podCIDR("10.2.0.0/24", 1))
	prefix := netip.MustParsePrefix("10.2.0.0/24")
	for name, deltas := range map[string][]ipcache.Delta{
		"another source":          cache.Delete(prefix, cluster.SourceFile, "node/default/n2"),
		"another resource":        cache.Delete(prefix, cluster.SourceDirectory, "node/default/n3"),
		"another prefix":          cache.Delete(netip.MustParsePrefix("10.2.0.0/25"), cluster.SourceDirectory, "node/default/n2"),
		"another family":          cache.Delete(netip.MustParsePrefix("::/24"), cluster.SourceDirectory, "node/default/n2"),
		"no prefix":               cache.Delete(netip.Prefix{}, cluster.SourceDirectory, "node/default/n2"),
		"all of another source":   cache.DropSource(cluster.SourceRestored),
		"all of another resource": cache.DeleteResource(cluster.SourceFile, "node/default/n2"),
		"a fact without a prefix": cache.Upsert(cluster.Fact{Source: cluster.SourceFile, Resource: "facts"}),
		"a replacement without":   cache.Replace(cluster.SourceFile, "facts", []cluster.Fact{{}}),
		"no fact":                 cache.Upsert(),
	} {
		if len(deltas) != 0 {
			t.Errorf("%s: %v", name, changed(deltas))
		}
	}
	if cache.Len() != 1 {
		t.Errorf("%d prefixes", cache.Len())
	}
	if deltas := cache.Delete(prefix, cluster.SourceDirectory, "node/default/n2"); len(deltas) != 1 {
		t.Errorf("its own slot: %v", changed(deltas))
	}
}

// cilium 21596, 24574: map, listeners and WireGuard agent waited for each other, as listeners were called
// under a lock. Nothing can be called back that nothing can be given.
func TestNothingCallsBack(t *testing.T) {
	cache := reflect.TypeFor[*ipcache.Cache]()
	for i := range cache.NumMethod() {
		method := cache.Method(i)
		for j := 1; j < method.Type.NumIn(); j++ {
			switch method.Type.In(j).Kind() {
			case reflect.Func, reflect.Chan, reflect.Interface:
				t.Errorf("%s takes a %s", method.Name, method.Type.In(j))
			}
		}
	}
}

func TestLookup(t *testing.T) {
	cache := ipcache.New()
	for _, prefix := range prefixes("10.0.0.0/8", "10.2.0.0/16", "10.2.3.4/32", "fd00::/8", "fd00::1/128") {
		cache.Upsert(podCIDR(prefix.String(), 1))
	}
	tests := map[string]string{
		"10.2.3.4":        "10.2.3.4/32",
		"10.2.3.5":        "10.2.0.0/16",
		"10.3.0.0":        "10.0.0.0/8",
		"10.255.255.255":  "10.0.0.0/8",
		"11.0.0.0":        "",
		"9.255.255.255":   "",
		"fd00::1":         "fd00::1/128",
		"fd00::2":         "fd00::/8",
		"fe00::1":         "",
		"::ffff:10.2.3.4": "10.2.3.4/32", // IPv4 in IPv6 notation is IPv4
		"fd00::1%eth0":    "fd00::1/128", // a zone means nothing here
		"::a02:304":       "",
	}
	for addr, want := range tests {
		prefix, entry, ok := cache.Lookup(netip.MustParseAddr(addr))
		if ok != (want != "") || ok && prefix.String() != want {
			t.Errorf("%s: %s, %t; want %q", addr, prefix, ok, want)
		}
		if got, found := cache.Get(prefix); found != ok || got != entry {
			t.Errorf("Get(%s): %+v, %t; want %+v", prefix, got, found, entry)
		}
	}
	if _, _, ok := cache.Lookup(netip.Addr{}); ok {
		t.Error("the zero address was found")
	}
	if _, ok := cache.Get(netip.MustParsePrefix("10.2.0.0/17")); ok {
		t.Error("Get found a prefix that nobody stated")
	}
	if _, ok := cache.Explain(netip.Prefix{}); ok {
		t.Error("Explain explained the zero prefix")
	}
}

func TestAllInPrefixOrder(t *testing.T) {
	cache := ipcache.New()
	want := prefixes("0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/16", "10.0.0.0/32", "10.0.0.1/32", "10.128.0.0/9", "192.0.2.1/32", "::/0", "::/1", "::1/128", "8000::/1")
	for _, prefix := range slices.Backward(want) {
		cache.Upsert(podCIDR(prefix.String(), 1))
	}
	var got []netip.Prefix
	for prefix := range cache.All() {
		got = append(got, prefix)
	}
	if diff := cmp.Diff(want, got, exact); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !slices.IsSortedFunc(got, netip.Prefix.Compare) {
		t.Error("this is not the order of netip.Prefix.Compare")
	}
	for prefix := range cache.All() { // a consumer may stop anywhere
		if prefix == want[3] {
			break
		}
	}
}

// Two label sets that prefer one number: each keeps what it has while it lives, whoever else comes
// and goes, and a listener is never told of a number that another set has.
func TestIdentitiesSurviveACollision(t *testing.T) {
	first, second := colliding(t)
	cache, numbers := ipcache.New(), map[netip.Prefix]identity.Number{}
	apiServer := func(prefix netip.Prefix) cluster.Fact {
		return cluster.Fact{Prefix: prefix, Source: cluster.SourceKubeAPIServer, Resource: "service", Info: cluster.Info{Labels: []string{identity.LabelKubeAPIServer}}}
	}
	note := func(deltas []ipcache.Delta) {
		for _, delta := range deltas {
			if delta.New == nil {
				delete(numbers, delta.Prefix)
			} else {
				numbers[delta.Prefix] = delta.New.Identity
			}
		}
	}
	note(cache.Upsert(apiServer(first)))
	preferred := numbers[first]
	note(cache.Upsert(apiServer(second)))
	if numbers[second] == preferred || !numbers[second].IsLocal() {
		t.Fatalf("both have %s: %v", preferred, numbers)
	}
	moved := numbers[second]
	note(cache.Delete(first, cluster.SourceKubeAPIServer, "service"))
	reached := apiServer(second) // the same labels, another entry, and the preferred number is free
	reached.Info.HasPair, reached.Info.Pair.Endpoint = true, second.Addr()
	if deltas := cache.Upsert(reached); len(deltas) != 1 {
		t.Fatalf("a pair more: %v", changed(deltas))
	} else {
		note(deltas)
	}
	if numbers[second] != moved {
		t.Errorf("%s became %s while it lived", moved, numbers[second])
	}
	note(cache.Upsert(apiServer(first)))
	if numbers[first] != preferred {
		t.Errorf("%s is free and preferred, but it became %s", preferred, numbers[first])
	}
	if late := maps.Collect(cache.All()); late[first].Identity != numbers[first] || late[second].Identity != numbers[second] {
		t.Errorf("a late listener has %v, the early one %v", late, numbers)
	}
}

// colliding returns two addresses of which the API server would prefer the same identity number.
func colliding(t *testing.T) (netip.Prefix, netip.Prefix) {
	t.Helper()
	seen := map[identity.Number]netip.Prefix{}
	for addr := netip.MustParseAddr("203.0.0.0"); addr.As4()[1] == 0; addr = addr.Next() {
		prefix := cluster.HostPrefix(addr)
		number := identity.PreferredNumber(identity.Complete(prefix, identity.NewLabels(identity.LabelKubeAPIServer), false))
		if other, taken := seen[number]; taken {
			return other, prefix
		}
		seen[number] = prefix
	}
	t.Fatal("no two of 65,536 addresses collide")
	panic("unreachable")
}
