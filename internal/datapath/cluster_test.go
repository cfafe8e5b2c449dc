package datapath

import (
	"errors"
	"net"
	"net/netip"
	"slices"
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
//	n8  key 1         10.0.0.8 fd00::8   not confirmed; behind it 10.244.8.0/24
//	n9  key 1         10.0.0.9           is sent to, but may send in clear
//	n11 key 1         10.0.0.11          not confirmed, but may not send in clear
//	n12 key 1         10.0.0.12 fd00::12 silent; behind it 10.244.12.0/24
//	groups of n2      239.1.0.0/16 ff05::/16
//
// All others are confirmed. Every machine has an API server, and this one listens there; exempt are SNMP, IPIP, and all of and for
// 10.244.2.80/28 and the nodes' port 9100 of TCP.
func testEntries() []PrefixEntry {
	const node, local = cluster.FlagNode, cluster.FlagLocal
	entry := func(prefix string, e plan.Entry) PrefixEntry {
		return PrefixEntry{Prefix: netip.MustParsePrefix(prefix), Entry: e}
	}
	peer := func(endpoint string, key cluster.KeyID, flags cluster.Flags, underlay uint32) plan.Entry {
		return plan.Entry{Identity: 6, Endpoint: netip.MustParseAddr(endpoint), Key: key, HasPair: true, Flags: flags, Underlay: underlay, Send: true, Enforce: true}
	}
	not := func(e plan.Entry, sent bool) plan.Entry {
		e.Send, e.Enforce = sent, false
		return e
	}
	silent := func(e plan.Entry) plan.Entry {
		e.Silent = true
		return e
	}
	refused := func(e plan.Entry) plan.Entry {
		e.Send, e.Enforce = false, true
		return e
	}
	narrow := func(e plan.Entry) plan.Entry {
		e.MTU = 1400
		return e
	}
	in := func(e plan.Entry, slot plan.Slot) plan.Entry {
		e.Slot = slot
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
		entry("10.0.0.8/32", not(peer("10.0.0.8", 1, node, 0), false)),
		entry("fd00::8/128", not(peer("fd00::8", 1, node, 0), false)),
		entry("10.244.8.0/24", not(peer("10.0.0.8", 1, 0, 0), false)),
		entry("10.0.0.9/32", not(peer("10.0.0.9", 1, node, 0), true)),
		entry("10.0.0.11/32", refused(peer("10.0.0.11", 1, node, 0))),
		entry("10.0.0.12/32", silent(peer("10.0.0.12", 1, node, 0))),
		entry("fd00::12/128", silent(peer("fd00::12", 1, node, 0))),
		entry("10.244.12.0/24", peer("10.0.0.12", 1, 0, 0)),
		entry("10.0.0.10/32", in(peer("10.0.0.10", 2, node, 0), 2)),
		entry("fd00::10/128", in(peer("fd00::10", 2, node, 0), 2)),
		entry("10.244.10.0/24", in(peer("10.0.0.10", 2, 0, 0), 3)),
		entry("239.1.0.0/16", peer("10.0.0.2", 1, 0, 0)),
		entry("ff05::/16", peer("10.0.0.2", 1, 0, 0)),
	}
}

func testServers() []netip.AddrPort {
	var servers []netip.AddrPort
	for _, address := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.4", "10.0.0.8", "10.0.0.9", "10.0.0.11", "10.0.0.12", "fd00::1", "fd00::8"} {
		servers = append(servers, netip.AddrPortFrom(netip.MustParseAddr(address), 6443))
	}
	return append(servers, deafServer)
}

// deafServer is in the list, and nobody listens there.
var deafServer = netip.MustParseAddrPort("10.0.0.1:2379")

func testExemptions() []model.Exemption {
	exempt := func(prefix string, protocol uint8, port uint16) model.Exemption {
		return model.Exemption{Prefix: netip.MustParsePrefix(prefix), Protocol: protocol, Port: port}
	}
	return []model.Exemption{
		exempt("0.0.0.0/0", 4, 0),
		exempt("10.0.0.0/8", protoUDP, 161),
		exempt("10.0.0.0/24", protoTCP, 9100),
		exempt("10.244.2.80/28", 0, 0),
		exempt("fd00:244:2::/64", protoTCP, 9100),
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
func lookupIn(entries []PrefixEntry) func(netip.Addr) (plan.Entry, bool) {
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
	listenAsServer(t)
	d := open(t, Options{MaxAddresses: 64, MaxPrefixes: 64})
	if failed, err := d.Apply(testEntries(), nil); err != nil || len(failed) > 0 {
		t.Fatalf("failed %v: %v", failed, err)
	}
	if err := d.writeUnderlays(testUnderlays()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.SetServers(testServers()), d.SetExemptions(testExemptions())); err != nil {
		t.Fatal(err)
	}
	return d
}

// memory is what the model knows of packets that came earlier; the zero value learns nothing.
type memory struct {
	datagrams map[model.Datagram]bool
	told      map[model.Pair]bool
	flows     map[model.Flow]bool
}

func newMemory() memory {
	return memory{map[model.Datagram]bool{}, map[model.Pair]bool{}, map[model.Flow]bool{}}
}

// runModel is the model's Run.
func runModel(program model.Program, in Input, config model.Config, known memory) model.Result {
	meta := model.Meta{Mark: in.Mark, L3: in.L3, Ifindex: loopback, Datagrams: known.datagrams, Told: known.told, Flows: known.flows}
	world := model.World{
		Lookup:     lookupIn(testEntries()),
		Servers:    map[netip.AddrPort]bool{},
		Free:       func(f model.Flow) bool { return slices.Contains(listening, f.Server) },
		Exemptions: testExemptions(),
		Underlays:  modelUnderlays(testUnderlays()),
	}
	for _, server := range testServers() {
		world.Servers[server] = true
	}
	switch program {
	case model.ProgramToNetdev:
		return model.ToNetdev(in.Frame, meta, config, world)
	case model.ProgramFromNetdev:
		return model.FromNetdev(in.Frame, meta, config, world)
	}
	return model.FromTunnel(in.Frame, meta, config, world)
}
