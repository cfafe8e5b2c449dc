package datapath

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"warren/internal/cluster"
	"warren/internal/datapath/model"
	"warren/internal/plan"
)

// member is where a struct has what.
type member struct{ offset, size int }

// TestLayout compares the structs that are in the maps with those of the C side, as the object's BTF
// has them.
func TestLayout(t *testing.T) {
	spec := embedded(t)
	tests := []struct {
		m          string
		key, value any
	}{
		{mapExact, address{}, exactValue{}},
		{mapPrefix, prefixKey{}, entryValue{}},
		{mapUnderlays, uint32(0), underlayValue{}},
		{mapServers, server{}, uint32(0)},
		{mapExemptions, prefixKey{}, exemptions{}},
		{mapReasons, uint32(0), counterValue{}},
		{mapPeerReasons, peerReason{}, counterValue{}},
		{mapDatagrams, datagram{}, uint64(0)},
		{mapTold, pair{}, uint64(0)},
		{mapFlows, flow{}, uint64(0)},
		{mapFragments, address{}, pathFragment{}},
	}
	for _, test := range tests {
		t.Run(test.m, func(t *testing.T) {
			m := spec.Maps[test.m]
			if got, want := m.KeySize, uint32(binary.Size(test.key)); got != want {
				t.Errorf("key has %d bytes in C, %d in Go", got, want)
			}
			if got, want := m.ValueSize, uint32(binary.Size(test.value)); got != want {
				t.Errorf("value has %d bytes in C, %d in Go", got, want)
			}
			if diff := cmp.Diff(membersC(t, m.Key), membersGo(test.key), cmp.AllowUnexported(member{})); diff != "" {
				t.Errorf("key (-C +Go):\n%s", diff)
			}
			if diff := cmp.Diff(membersC(t, m.Value), membersGo(test.value), cmp.AllowUnexported(member{})); diff != "" {
				t.Errorf("value (-C +Go):\n%s", diff)
			}
		})
	}
	// TestArrivals compares what is in the ring; the scratch and the constants are the programs' own.
	unlike := []string{mapArrivals, "scratch", ".rodata"}
	if got := slices.Sorted(maps.Keys(spec.Maps)); len(got) != len(tests)+len(unlike) {
		t.Errorf("maps of the object: %v; one is not compared (besides %v)", got, unlike)
	}
}

func embedded(t testing.TB) *ebpf.CollectionSpec {
	t.Helper()
	spec, err := loadSpec()
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// membersC returns nothing for what is no struct, and for struct address, which Go has as an array.
func membersC(t *testing.T, c btf.Type) []member {
	t.Helper()
	s, ok := btf.As[*btf.Struct](c)
	if !ok || s.Name == "address" {
		return nil
	}
	var members []member
	for _, m := range s.Members {
		size, err := btf.Sizeof(m.Type)
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, member{offset: int(m.Offset.Bytes()), size: size})
	}
	return members
}

func membersGo(value any) []member {
	s := reflect.TypeOf(value)
	if s.Kind() != reflect.Struct {
		return nil
	}
	var members []member
	for i := range s.NumField() {
		members = append(members, member{offset: int(s.Field(i).Offset), size: int(s.Field(i).Type.Size())})
	}
	return members
}

// TestConstants: every constant of bpf/config.h is set from Go, and the one that users know is the same.
func TestConstants(t *testing.T) {
	spec := embedded(t)
	set := variant{}.variables(testConfig(), false)
	for name, variable := range spec.Variables {
		if name == "hand_back_mac" {
			if got := [6]byte(variable.Value); got != model.HandBackMAC {
				t.Errorf("hand-back MAC is %x in C, %x in Go", got, model.HandBackMAC)
			}
			continue
		}
		value, ok := set[name]
		if !ok {
			t.Errorf("nothing sets %s", name)
		} else if got := binary.Size(value); got != int(variable.Size()) {
			t.Errorf("%s has %d bytes in C, %d in Go", name, variable.Size(), got)
		}
		delete(set, name)
	}
	for name := range set {
		t.Errorf("the object has no %s", name)
	}
	if got, want := spec.Maps[mapReasons].MaxEntries, uint32(len(model.Programs())*model.MaxReason); got != want {
		t.Errorf("%d counters in C, %d in Go", got, want)
	}
}

func TestEntryValueRoundTrip(t *testing.T) {
	tests := []struct {
		name string
		in   plan.Entry
	}{
		{"nothing", plan.Entry{}},
		{"own address", plan.Entry{Identity: 1, Flags: cluster.FlagNode | cluster.FlagLocal}},
		{"peer", plan.Entry{Identity: 6, Endpoint: netip.MustParseAddr("192.0.2.1"), Key: 255, HasPair: true, Underlay: 1 << 31}},
		{"peer with a smaller tunnel", plan.Entry{Endpoint: netip.MustParseAddr("192.0.2.1"), Key: 1, HasPair: true, MTU: 65535}},
		{"confirmed peer", plan.Entry{Endpoint: netip.MustParseAddr("192.0.2.1"), Key: 1, HasPair: true, Send: true}},
		{"peer that encrypts all", plan.Entry{Endpoint: netip.MustParseAddr("192.0.2.1"), Key: 1, HasPair: true, Enforce: true}},
		{"peer with a later key", plan.Entry{Endpoint: netip.MustParseAddr("192.0.2.1"), Key: 2, HasPair: true, Send: true, Slot: 3}},
		{"silent peer", plan.Entry{Endpoint: netip.MustParseAddr("192.0.2.1"), Key: 1, HasPair: true, Send: true, Enforce: true, Slot: 3, Silent: true}},
		{"explicitly not encrypted", plan.Entry{Endpoint: netip.MustParseAddr("2001:db8::1"), HasPair: true}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.in, entryValueOf(test.in).entry(), cmp.Comparer(sameAddr)); diff != "" {
				t.Errorf("entry (-want +got):\n%s", diff)
			}
		})
	}
	// A pair that does not count is not written: it must not become visible when a flag is added.
	halves := plan.Entry{Endpoint: netip.MustParseAddr("192.0.2.1"), Key: 3}
	if got := entryValueOf(halves); got != (entryValue{}) {
		t.Errorf("an absent pair is written: %+v", got)
	}
}

func sameAddr(a, b netip.Addr) bool { return a == b }

// anyPrefix draws a canonical prefix that has a place in the maps.
func anyPrefix(t *rapid.T) netip.Prefix {
	for {
		raw := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "address")
		addr := netip.AddrFrom16([16]byte(raw))
		if rapid.Bool().Draw(t, "IPv4") {
			addr = netip.AddrFrom4([4]byte(raw[:4]))
		}
		bits := rapid.IntRange(0, addr.BitLen()).Draw(t, "bits")
		prefix := cluster.CanonicalPrefix(netip.PrefixFrom(addr, bits))
		if validKey(prefix) == nil {
			return prefix
		}
	}
}

func TestPrefixKeyRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefix := anyPrefix(t)
		if got := prefixKeyOf(prefix).prefix(); got != prefix {
			t.Fatalf("%s came back as %s", prefix, got)
		}
		if got := addressOf(prefix.Addr()).addr(); got != prefix.Addr() && prefix.Addr() != netip.IPv6Unspecified() {
			t.Fatalf("%s came back as %s", prefix.Addr(), got)
		}
	})
}

func TestValidKey(t *testing.T) {
	tests := []struct {
		name   string
		prefix netip.Prefix
		ok     bool
	}{
		{"IPv4", netip.MustParsePrefix("10.0.0.0/8"), true},
		{"IPv6", netip.MustParsePrefix("2001:db8::/32"), true},
		{"all IPv4", netip.MustParsePrefix("0.0.0.0/0"), true},
		{"invalid", netip.Prefix{}, false},
		{"bits behind the length", netip.MustParsePrefix("10.0.0.1/8"), false},
		{"IPv4 in IPv6 notation", netip.MustParsePrefix("::ffff:10.0.0.0/104"), false},
		{"all IPv6, which has IPv4 in it", netip.MustParsePrefix("::/0"), false},
		{"the one next to IPv4, with IPv4 in it", netip.MustParsePrefix("::ff00:0:0/88"), false},
		{"the one next to IPv4", netip.MustParsePrefix("::fffe:0:0/96"), true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if err := validKey(test.prefix); (err == nil) != test.ok {
				t.Errorf("%s: %v", test.prefix, err)
			}
		})
	}
}
