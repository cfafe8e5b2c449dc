package ipcache_test

import (
	std "cmp"
	"encoding/binary"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"warren/internal/cluster"
	"warren/internal/identity"
	"warren/internal/ipcache"
)

// The long target, 100,000 sequences: go test ./internal/ipcache -run Property -rapid.checks=100000

var exact = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

// listener is a consumer that knows only what deltas tell it, and holds them to their promises.
type listener map[netip.Prefix]ipcache.Entry

func (l listener) apply(t *rapid.T, deltas []ipcache.Delta) {
	t.Helper()
	for i, delta := range deltas {
		if i > 0 && deltas[i-1].Prefix.Compare(delta.Prefix) >= 0 {
			t.Fatalf("%s comes after %s", delta.Prefix, deltas[i-1].Prefix)
		}
		var old *ipcache.Entry
		if had, ok := l[delta.Prefix]; ok {
			old = &had
		}
		if !same(old, delta.Old) {
			t.Fatalf("%s: Old is not what the listener has (-has +Old):\n%s", delta.Prefix, cmp.Diff(old, delta.Old, exact))
		}
		if same(delta.Old, delta.New) {
			t.Fatalf("%s: a delta without difference", delta.Prefix)
		}
		if delta.New == nil {
			delete(l, delta.Prefix)
		} else {
			l[delta.Prefix] = *delta.New
		}
	}
}

func same(a, b *ipcache.Entry) bool { return a == b || a != nil && b != nil && *a == *b }

// TestPropertyStateIsAFunctionOfTheLiveFacts interleaves every operation and compares with the model
// after each: state, deltas, late listener, longest match, provenance, conflicts. In the end all facts
// go, and nothing may be left.
func TestPropertyStateIsAFunctionOfTheLiveFacts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cache, facts, seen := ipcache.New(), model{}, listener{}
		step := func(deltas []ipcache.Delta) {
			seen.apply(t, deltas)
			compare(t, cache, facts, seen)
		}
		t.Repeat(map[string]func(*rapid.T){
			"upsert": func(t *rapid.T) {
				stated := rapid.SliceOfN(aFact, 1, 4).Draw(t, "facts")
				for _, f := range stated {
					facts.put(f)
				}
				step(cache.Upsert(stated...))
			},
			"upsert again": func(t *rapid.T) {
				if len(facts) == 0 {
					t.Skip("no fact")
				}
				if deltas := cache.Upsert(draw(t, facts)); len(deltas) != 0 {
					t.Fatalf("nothing changed, and yet %v", deltas)
				}
			},
			"delete": func(t *rapid.T) {
				f := aFact.Draw(t, "slot of")
				if len(facts) > 0 && rapid.Bool().Draw(t, "a live one") {
					f = draw(t, facts)
				}
				gone := slot{f.Prefix, f.Source, f.Resource}
				facts.drop(func(s slot) bool { return s == gone })
				step(cache.Delete(f.Prefix, f.Source, f.Resource))
			},
			"delete resource": func(t *rapid.T) {
				source, resource := aSource.Draw(t, "source"), aResource.Draw(t, "resource")
				facts.drop(func(s slot) bool { return s.source == source && s.resource == resource })
				step(cache.DeleteResource(source, resource))
			},
			"replace": func(t *rapid.T) {
				source, resource := aSource.Draw(t, "source"), aResource.Draw(t, "resource")
				stated := rapid.SliceOfN(aFact, 0, 4).Draw(t, "facts")
				facts.drop(func(s slot) bool { return s.source == source && s.resource == resource })
				for _, f := range stated {
					f.Source, f.Resource = source, resource
					facts.put(f)
				}
				step(cache.Replace(source, resource, stated))
			},
			"drop source": func(t *rapid.T) {
				source := aSource.Draw(t, "source")
				facts.drop(func(s slot) bool { return s.source == source })
				step(cache.DropSource(source))
			},
		})
		for source := cluster.SourceKubeAPIServer; source <= cluster.SourceRestored; source++ {
			seen.apply(t, cache.DropSource(source))
		}
		if held := cache.Held(); len(held) != 0 || len(seen) != 0 {
			t.Fatalf("after the last fact the cache holds %v, the listener %v", held, seen)
		}
	})
}

// compare holds everything that can be asked of a cache against the model.
func compare(t *rapid.T, cache *ipcache.Cache, facts model, seen listener) {
	t.Helper()
	want := facts.entries()
	if !maps.Equal(want, seen) {
		t.Fatalf("a listener from the beginning (-want +got):\n%s", cmp.Diff(want, map[netip.Prefix]ipcache.Entry(seen), exact))
	}
	if late := maps.Collect(cache.All()); !maps.Equal(want, late) {
		t.Fatalf("a late listener (-want +got):\n%s", cmp.Diff(want, late, exact))
	}
	if cache.Len() != len(want) {
		t.Fatalf("Len: %d, want %d", cache.Len(), len(want))
	}
	conflicts := facts.conflicts()
	if got := cache.Conflicts(); !reflect.DeepEqual(conflicts, got) {
		t.Fatalf("conflicts (-want +got):\n%s", cmp.Diff(conflicts, got, exact))
	}
	if got := cache.Conflicted(); got != countPrefixes(conflicts) {
		t.Fatalf("Conflicted: %d", got)
	}
	for addr := range probes(facts) {
		prefix, entry, ok := cache.Lookup(addr)
		if best := facts.lookup(addr); prefix != best || ok != best.IsValid() || entry != want[best] {
			t.Fatalf("Lookup(%s): %s, %+v, %t; want %s, %+v", addr, prefix, entry, ok, best, want[best])
		}
	}
	for prefix, entry := range want {
		explained(t, cache, facts, prefix, entry)
	}
}

// explained checks that the provenance of an entry is the model's, and accounts for the entry.
func explained(t *rapid.T, cache *ipcache.Cache, facts model, prefix netip.Prefix, entry ipcache.Entry) {
	t.Helper()
	e, ok := cache.Explain(prefix)
	if !ok || e.Prefix != prefix || e.Entry != entry {
		t.Fatalf("Explain(%s): %+v, %t; want %+v", prefix, e, ok, entry)
	}
	var stated []cluster.Fact
	for _, evidence := range e.Facts {
		owner := evidence.Fact.Info.Owner
		if evidence.Overruled != (owner != cluster.NodeID{} && owner != entry.Owner) {
			t.Fatalf("%s belongs to %s; overruled is wrong: %+v", prefix, entry.Owner, evidence)
		}
		stated = append(stated, evidence.Fact)
	}
	if want := facts.behind(prefix); !reflect.DeepEqual(want, stated) {
		t.Fatalf("facts behind %s (-want +got):\n%s", prefix, cmp.Diff(want, stated, exact))
	}
	if (e.Owner != nil) != (entry.Owner != cluster.NodeID{}) || e.Owner != nil && e.Owner.Info.Owner != entry.Owner {
		t.Fatalf("%s: the owner comes from %+v", prefix, e.Owner)
	}
	if (e.Pair != nil) != entry.HasPair || e.Pair != nil && e.Pair.Info.Pair != entry.Pair {
		t.Fatalf("%s: the pair comes from %+v", prefix, e.Pair)
	}
	for i, label := range entry.Labels.Strings() {
		if e.Labels[i].Label != label {
			t.Fatalf("%s: labels %v, want %v", prefix, e.Labels, entry.Labels)
		}
		if from := e.Labels[i].Fact; from != nil && !slices.Contains(from.Info.Labels, label) {
			t.Fatalf("%s: label %s does not come from %+v", prefix, label, from)
		}
	}
}

// TestPropertyOrderDoesNotMatter states the same facts in two orders, cut into calls in two ways.
func TestPropertyOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		facts := rapid.SliceOfNDistinct(aFact, 1, 12, func(f cluster.Fact) slot {
			return slot{f.Prefix, f.Source, f.Resource}
		}).Draw(t, "facts")
		one, other := ipcache.New(), ipcache.New()
		one.Upsert(facts...)
		for rest := rapid.Permutation(facts).Draw(t, "order"); len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "facts in a call")
			other.Upsert(rest[:n]...)
			rest = rest[n:]
		}
		if diff := cmp.Diff(maps.Collect(one.All()), maps.Collect(other.All()), exact); diff != "" {
			t.Fatalf("(-one order +another):\n%s", diff)
		}
	})
}

// TestPropertyAddThenRemoveIsNeverAdded adds facts in new slots and removes them in another order.
func TestPropertyAddThenRemoveIsNeverAdded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cache, seen := ipcache.New(), listener{}
		seen.apply(t, cache.Upsert(rapid.SliceOfN(aFact, 0, 8).Draw(t, "there before")...))
		before := maps.Collect(cache.All())
		conflicts := cache.Conflicts()
		passing := rapid.SliceOfN(aFact, 1, 8).Draw(t, "passing")
		for i := range passing {
			passing[i].Resource += "/passing"
			seen.apply(t, cache.Upsert(passing[i]))
		}
		for _, f := range rapid.Permutation(passing).Draw(t, "order of removal") {
			seen.apply(t, cache.Delete(f.Prefix, f.Source, f.Resource))
		}
		if diff := cmp.Diff(before, map[netip.Prefix]ipcache.Entry(seen), exact); diff != "" {
			t.Fatalf("entries (-before +after):\n%s", diff)
		}
		if diff := cmp.Diff(conflicts, cache.Conflicts(), exact); diff != "" {
			t.Fatalf("conflicts (-before +after):\n%s", diff)
		}
	})
}

// TestPropertyAFactChangesOnlyWhatItSays: at every address, a fact without opinion on the owner and
// the pair leaves both as they were.
func TestPropertyAFactChangesOnlyWhatItSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cache := ipcache.New()
		cache.Upsert(rapid.SliceOfN(aFact, 1, 8).Draw(t, "there before")...)
		mute := aFact.Draw(t, "mute")
		mute.Info.Owner, mute.Info.Pair, mute.Info.HasPair = cluster.NodeID{}, cluster.Pair{}, false
		mute.Resource += "/mute"
		addr := mute.Prefix.Addr()
		_, before, _ := cache.Lookup(addr)
		cache.Upsert(mute)
		_, after, _ := cache.Lookup(addr)
		if before.Owner != after.Owner || before.Pair != after.Pair || before.HasPair != after.HasPair {
			t.Fatalf("%s: %+v became %+v", addr, before, after)
		}
	})
}

// The generators draw from few values, so that facts meet.

var aPrefix = rapid.OneOf(
	rapid.SampledFrom(prefixes(
		"0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.1.0/24", "10.1.1.5/32", "10.1.1.6/32", "10.2.0.0/16", "192.0.2.1/32",
		"::/0", "fd00::/48", "fd00::/64", "fd00::1/128", "fd00:0:0:1::/64", "2001:db8::1/128")),
	// Any length: few bits are set, so that such prefixes nest and fork at every depth.
	rapid.Custom(func(t *rapid.T) netip.Prefix {
		var raw [4]byte
		binary.BigEndian.PutUint32(raw[:], rapid.Uint32Range(0, 7).Draw(t, "v4")<<rapid.IntRange(0, 29).Draw(t, "shift"))
		return netip.PrefixFrom(netip.AddrFrom4(raw), rapid.IntRange(0, 32).Draw(t, "bits")).Masked()
	}),
	rapid.Custom(func(t *rapid.T) netip.Prefix {
		var raw [16]byte
		raw[rapid.IntRange(0, 15).Draw(t, "at")] = rapid.Byte().Draw(t, "v6")
		return netip.PrefixFrom(netip.AddrFrom16(raw), rapid.IntRange(0, 128).Draw(t, "bits")).Masked()
	}))

var aSource = rapid.SampledFrom([]cluster.Source{
	cluster.SourceKubeAPIServer, cluster.SourceLocal, cluster.SourceCustomResource, cluster.SourceDirectory,
	cluster.SourceFile, cluster.SourceRestored,
})

var aResource = rapid.SampledFrom([]string{"node/default/n1", "node/default/n2", "node/default/n3", "service/default/kubernetes"})

var aLabel = rapid.SampledFrom([]string{
	identity.LabelHost, identity.LabelRemoteNode, identity.LabelKubeAPIServer, identity.LabelWorld, identity.LabelUnmanaged,
	identity.LabelHealth, "cidr:10.0.0.0/8", "cidr:10.1.0.0/16", "k8s:app=web", "k8s:zone=a",
})

var anOwner = rapid.SampledFrom([]cluster.NodeID{
	{}, {Cluster: "default", Name: "n1"}, {Cluster: "default", Name: "n2"}, {Cluster: "other", Name: "n2"},
})

var aPair = rapid.Custom(func(t *rapid.T) cluster.Pair {
	return cluster.Pair{
		Endpoint: rapid.SampledFrom([]netip.Addr{
			{}, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("fd00::1"),
		}).Draw(t, "endpoint"),
		Key: cluster.KeyID(rapid.IntRange(0, 2).Draw(t, "key")),
	}
})

var aFact = rapid.Custom(func(t *rapid.T) cluster.Fact {
	f := cluster.Fact{
		Prefix:   aPrefix.Draw(t, "prefix"),
		Source:   aSource.Draw(t, "source"),
		Resource: aResource.Draw(t, "resource"),
		Issued:   rapid.Int64Range(0, 2).Draw(t, "issued"),
		Info: cluster.Info{
			Labels: identity.NewLabels(rapid.SliceOfN(aLabel, 0, 3).Draw(t, "labels")...).Strings(),
			Owner:  anOwner.Draw(t, "owner"),
			Flags:  cluster.Flags(rapid.IntRange(0, 3).Draw(t, "flags")),
		},
	}
	if f.Info.HasPair = rapid.Bool().Draw(t, "has pair"); f.Info.HasPair {
		f.Info.Pair = aPair.Draw(t, "pair")
	}
	return f
})

// draw returns a live fact; which one depends only on what rapid draws.
func draw(t *rapid.T, facts model) cluster.Fact {
	slots := slices.SortedFunc(maps.Keys(facts), func(a, b slot) int {
		return std.Or(a.prefix.Compare(b.prefix), std.Compare(a.source, b.source), std.Compare(a.resource, b.resource))
	})
	return facts[rapid.SampledFrom(slots).Draw(t, "slot")]
}

// probes returns the first and the last address of every prefix, and their neighbours.
func probes(facts model) map[netip.Addr]bool {
	addrs := map[netip.Addr]bool{}
	for s := range facts {
		for _, addr := range []netip.Addr{s.prefix.Addr(), last(s.prefix)} {
			for _, probe := range []netip.Addr{addr.Prev(), addr, addr.Next()} {
				addrs[probe.Unmap()] = true // the last of ::/80 is the last of IPv4
			}
		}
	}
	delete(addrs, netip.Addr{})
	return addrs
}

// last returns the last address of a prefix.
func last(prefix netip.Prefix) netip.Addr {
	raw := prefix.Addr().AsSlice()
	for i := prefix.Bits(); i < len(raw)*8; i++ {
		raw[i/8] |= 0x80 >> (i % 8)
	}
	addr, _ := netip.AddrFromSlice(raw)
	return addr
}

func countPrefixes(conflicts []ipcache.Conflict) int {
	prefixes := map[netip.Prefix]bool{}
	for _, conflict := range conflicts {
		prefixes[conflict.Prefix] = true
	}
	return len(prefixes)
}

func prefixes(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}
