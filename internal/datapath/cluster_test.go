package datapath

import (
	"net"
	"net/netip"
	"testing"

	"warren/internal/cluster"
	"warren/internal/datapath/model"
	"warren/internal/plan"
)

// The cluster that packets are judged in:
//
//	n1  this node     10.0.0.1 fd00::1   behind it 10.244.1.0/24 fd00:244:1::/64 and the pod 10.244.2.99
//	n2  key 1         10.0.0.2 fd00::2   behind it 10.244.2.0/24 fd00:244:2::/64
//	n3  key 0         10.0.0.3 fd00::3   behind it 10.244.3.0/24
//	n4  no pair       10.0.0.4
//	n5  key 2         10.0.0.5           behind it 10.244.2.64/28, inside the prefix of n2; by device 7
//	n6  key 1         10.0.0.6           by device 5, which is L3
//	n7  key 1         10.0.0.7           behind it 10.244.7.0/24 fd00:244:7::/64, with a tunnel for 1400 bytes
//	groups of n2      239.1.0.0/16 ff05::/16
func testEntries() []PrefixEntry {
	const node, local = cluster.FlagNode, cluster.FlagLocal
	entry := func(prefix string, e plan.Entry) PrefixEntry {
		return PrefixEntry{Prefix: netip.MustParsePrefix(prefix), Entry: e}
	}
	peer := func(endpoint string, key cluster.KeyID, flags cluster.Flags, underlay uint32) plan.Entry {
		return plan.Entry{Identity: 6, Endpoint: netip.MustParseAddr(endpoint), Key: key, HasPair: true, Flags: flags, Underlay: underlay}
	}
	narrow := func(e plan.Entry) plan.Entry {
		e.MTU = 1400
		return e
	}
	return []PrefixEntry{
		entry("10.0.0.1/32", plan.Entry{Identity: 1, Flags: node | local}),
		entry("fd00::1/128", plan.Entry{Identity: 1, Flags: node | local}),
		entry("10.244.1.0/24", plan.Entry{Flags: local}),
		entry("fd00:244:1::/64", plan.Entry{Flags: local}),
		entry("10.244.2.99/32", plan.Entry{Flags: local}),
		entry("10.0.0.2/32", peer("10.0.0.2", 1, node, 0)),
		entry("fd00::2/128", peer("fd00::2", 1, node, 0)),
		entry("10.244.2.0/24", peer("10.0.0.2", 1, 0, 0)),
		entry("fd00:244:2::/64", peer("fd00::2", 1, 0, 0)),
		entry("10.0.0.3/32", peer("10.0.0.3", cluster.NoEncryption, node, 0)),
		entry("fd00::3/128", peer("fd00::3", cluster.NoEncryption, node, 0)),
		entry("10.244.3.0/24", peer("10.0.0.3", cluster.NoEncryption, 0, 0)),
		entry("10.0.0.4/32", plan.Entry{Identity: 6, Flags: node}),
		entry("10.0.0.5/32", peer("10.0.0.5", 2, node, 7)),
		entry("10.244.2.64/28", peer("10.0.0.5", 2, 0, 7)),
		entry("10.0.0.6/32", peer("10.0.0.6", 1, node, 5)),
		entry("10.0.0.7/32", narrow(peer("10.0.0.7", 1, node, 0))),
		entry("10.244.7.0/24", narrow(peer("10.0.0.7", 1, 0, 0))),
		entry("fd00:244:7::/64", narrow(peer("10.0.0.7", 1, 0, 0))),
		entry("239.1.0.0/16", peer("10.0.0.2", 1, 0, 0)),
		entry("ff05::/16", peer("10.0.0.2", 1, 0, 0)),
	}
}

// testUnderlays are devices of which only the map has to know.
func testUnderlays() []Underlay {
	return []Underlay{
		{Index: 2, Name: "eth0", MAC: net.HardwareAddr{0x02, 0, 0, 0, 0, 0x22}},
		{Index: 5, Name: "ppp0", L3: true},
		{Index: 7, Name: "eth1", MAC: net.HardwareAddr{0x02, 0, 0, 0, 0, 0x77}},
	}
}

func modelUnderlays(underlays []Underlay) map[uint32]model.Underlay {
	all := map[uint32]model.Underlay{}
	for _, u := range underlays {
		known := model.Underlay{L3: u.L3}
		copy(known.MAC[:], u.MAC)
		all[u.Index] = known
	}
	return all
}

// lookupIn is the longest prefix match by looking at everything.
func lookupIn(entries []PrefixEntry) model.Lookup {
	return func(addr netip.Addr) (best plan.Entry, found bool) {
		longest := -1
		for _, e := range entries {
			if e.Prefix.Contains(addr) && e.Prefix.Bits() > longest {
				best, found, longest = e.Entry, true, e.Prefix.Bits()
			}
		}
		return best, found
	}
}

// openCluster opens a datapath that knows the test's cluster, without devices.
func openCluster(t testing.TB) *Datapath {
	t.Helper()
	d := open(t, Options{MaxAddresses: 64, MaxPrefixes: 64})
	if failed, err := d.Apply(testEntries(), nil); err != nil || len(failed) > 0 {
		t.Fatalf("failed %v: %v", failed, err)
	}
	if err := d.writeUnderlays(testUnderlays()); err != nil {
		t.Fatal(err)
	}
	return d
}

// memory is what the model knows of packets that came earlier; the zero value learns nothing.
type memory struct {
	datagrams map[model.Datagram]bool
	told      map[model.Pair]bool
}

func newMemory() memory {
	return memory{map[model.Datagram]bool{}, map[model.Pair]bool{}}
}

// runModel is the model's Run.
func runModel(program model.Program, in Input, config model.Config, known memory) model.Result {
	meta := model.Meta{Mark: in.Mark, L3: in.L3, Ifindex: loopback, Datagrams: known.datagrams, Told: known.told}
	lookup := lookupIn(testEntries())
	switch program {
	case model.ProgramToNetdev:
		return model.ToNetdev(in.Frame, meta, config, lookup)
	case model.ProgramFromNetdev:
		return model.FromNetdev(in.Frame, meta, config, lookup)
	}
	return model.FromTunnel(in.Frame, meta, config, lookup, modelUnderlays(testUnderlays()))
}
