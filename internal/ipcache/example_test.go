package ipcache_test

import (
	"fmt"
	"net/netip"

	"warren/internal/cluster"
	"warren/internal/identity"
	"warren/internal/ipcache"
)

// A node that runs the API server: two facts by two sources, one entry.
func Example() {
	address := netip.MustParsePrefix("192.0.2.12/32")
	cache := ipcache.New()
	cache.Upsert(cluster.Fact{
		Prefix: address, Source: cluster.SourceKubeAPIServer, Resource: "service/default/kubernetes",
		Info: cluster.Info{Labels: []string{identity.LabelKubeAPIServer}},
	})
	deltas := cache.Upsert(cluster.Fact{
		Prefix: address, Source: cluster.SourceCustomResource, Resource: "node/default/n2",
		Info: cluster.Info{
			Labels: []string{identity.LabelRemoteNode}, Owner: cluster.NodeID{Cluster: "default", Name: "n2"},
			Pair: cluster.Pair{Endpoint: address.Addr(), Key: 1}, HasPair: true, Flags: cluster.FlagNode,
		},
	})
	for _, delta := range deltas {
		fmt.Println(delta.Old.Labels)
		fmt.Println(delta.New.Labels, delta.New.Identity, delta.New.Owner, delta.New.Pair.Endpoint, delta.New.Pair.Key)
	}
	// Output:
	// cidr:192.0.2.12/32,reserved:kube-apiserver,reserved:world
	// reserved:kube-apiserver,reserved:remote-node kube-apiserver default/n2 192.0.2.12 1
}
