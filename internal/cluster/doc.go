// Package cluster is Warren's vocabulary: the machines of a cluster, their keys, and the facts that
// sources state about addresses. It holds values and their validation, nothing that decides, and it
// does no I/O. Every other package may import it; it imports only the standard library.
//
//	key, err := cluster.ParsePublicKey(text)
//	node := cluster.Node{ID: cluster.NodeID{Cluster: "default", Name: "n1"}, Keys: []cluster.Key{{Public: key, Epoch: 1, Port: cluster.DefaultPort}}}
//	err = node.Validate() // every problem at once
package cluster
