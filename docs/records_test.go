package docs_test

import (
	"net/netip"
	"time"

	"warren/internal/cluster"
	"warren/internal/discovery/record"
)

// wholeRecord is a record of everything that one can have, as its node's agent writes it.
func wholeRecord() string {
	var key cluster.PublicKey
	copy(key[:], "a key that no node has: 32 bytes")
	return yaml(record.Marshal(cluster.Node{
		ID:        cluster.NodeID{Cluster: cluster.DefaultCluster, Name: "n1"},
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
		Prefixes:  []netip.Prefix{netip.MustParsePrefix("10.42.1.0/24"), netip.MustParsePrefix("2001:db8:42:1::/64")},
		Keys:      []cluster.Key{{Public: key, Epoch: 1, Port: cluster.DefaultPort}},
		Issued:    time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC),
		Version:   "v0.1.0",
	}))
}

func apiServers() string {
	return yaml(record.MarshalAPIServers([]netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:6443"), netip.MustParseAddrPort("[2001:db8::1]:6443")}))
}

func yaml(text []byte) string { return "```yaml\n" + string(text) + "```\n" }
