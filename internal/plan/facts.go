package plan

import (
	"net/netip"

	"warren/internal/cluster"
)

// The labels that machines' addresses carry; their identity numbers are in package identity.
const (
	labelHost          = "reserved:host"
	labelRemoteNode    = "reserved:remote-node"
	labelKubeAPIServer = "reserved:kube-apiserver"
)

// Resource is the name under which a node's record states its facts.
func Resource(id cluster.NodeID) string { return "node/" + id.String() }

// LocalFacts is what this node knows about itself: its addresses are the host's, its prefixes are local.
func LocalFacts(self *cluster.Node) []cluster.Fact {
	return facts(self, cluster.SourceLocal, func(prefix netip.Prefix, node bool) cluster.Info {
		info := cluster.Info{Owner: self.ID, Flags: cluster.FlagLocal}
		if node {
			info.Labels = []string{labelHost}
			info.Flags |= cluster.FlagNode
		}
		return info
	})
}

// PeerFacts is what an admitted record says: all its addresses and prefixes are reached through the
// tunnel endpoint of the node, with its key of that epoch; 0: it has none.
func PeerFacts(self, peer *cluster.Node, source cluster.Source, epoch uint32) []cluster.Fact {
	endpoint, reachable := EndpointOf(self, peer)
	if !reachable || epoch == 0 {
		return UnreachableFacts(peer, source)
	}
	pair := cluster.Pair{Endpoint: endpoint, Key: cluster.KeyIDOf(epoch)}
	return facts(peer, source, func(prefix netip.Prefix, node bool) cluster.Info {
		info := remoteInfo(node)
		info.Pair, info.HasPair, info.Owner = pair, true, peer.ID
		return info
	})
}

// UnreachableFacts is what is left of a record that was refused: that these are addresses of the
// cluster. Without a pair nothing is encrypted to them, and the datapath counts what goes there in
// clear, or drops it. They claim no owner, so that they take nothing from an admitted node.
func UnreachableFacts(node *cluster.Node, source cluster.Source) []cluster.Fact {
	list := facts(node, source, func(_ netip.Prefix, node bool) cluster.Info { return remoteInfo(node) })
	for i := range list {
		list[i].Issued = 0
	}
	return list
}

func remoteInfo(node bool) cluster.Info {
	if node {
		return cluster.Info{Labels: []string{labelRemoteNode}, Flags: cluster.FlagNode}
	}
	return cluster.Info{}
}

func facts(node *cluster.Node, source cluster.Source, info func(prefix netip.Prefix, node bool) cluster.Info) []cluster.Fact {
	var list []cluster.Fact
	add := func(prefix netip.Prefix, isNode bool) {
		list = append(list, cluster.Fact{
			Prefix: prefix, Source: source, Resource: Resource(node.ID),
			Issued: issued(node), Info: info(prefix, isNode),
		})
	}
	addresses := map[netip.Prefix]bool{}
	for _, addr := range node.Addresses {
		if cluster.ValidUnicast(addr) == nil {
			addresses[cluster.HostPrefix(addr)] = true
			add(cluster.HostPrefix(addr), true)
		}
	}
	for _, prefix := range node.Prefixes {
		// A prefix that is one of the node's addresses has its slot already.
		if cluster.ValidPrefix(prefix) == nil && !addresses[prefix] {
			add(prefix, false)
		}
	}
	return list
}

func issued(node *cluster.Node) int64 {
	if node.Issued.IsZero() {
		return 0
	}
	return node.Issued.Unix()
}

// APIServers is the resource that lists where the API server is reached, in the folder of records.
const APIServers = "file/apiserver.yaml"

// APIServerFacts label the addresses of API servers. They say nothing about owner or pair: those of a
// machine that is also an API server come from its record, whichever is known first.
func APIServerFacts(servers []netip.AddrPort) []cluster.Fact {
	var list []cluster.Fact
	for _, server := range servers {
		if addr := server.Addr().Unmap(); cluster.ValidUnicast(addr) == nil {
			list = append(list, cluster.Fact{Prefix: cluster.HostPrefix(addr), Info: cluster.Info{Labels: []string{labelKubeAPIServer}}})
		}
	}
	return list
}
