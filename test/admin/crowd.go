package admin

import (
	"fmt"
	"net/http"
	"net/netip"

	"golang.org/x/sync/errgroup"

	"warren/internal/cluster"
	"warren/internal/discovery/record/recordtest"
)

// Records is the path of the WarrenNodes.
const Records = "/apis/warren.network/v1alpha1/warrennodes"

// Fields are those of an object, as JSON has them.
type Fields = map[string]any

// Many is the i-th of many nodes, 0 to 16383: an address in 10.7.0.0/16 and up, pods in 100.64.0.0/10, and a key that
// nobody has.
func Many(i int) cluster.Node {
	node := recordtest.Sample(fmt.Sprintf("many-%04d", i), 1)
	node.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{10, 7, byte(i >> 8), byte(i)})}
	node.Prefixes = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64 + byte(i>>8), byte(i), 0}), 24)}
	node.Keys[0].Public = cluster.PublicKey{1, byte(i >> 8), byte(i)}
	return node
}

// WarrenNode is the resource of a node.
func WarrenNode(node cluster.Node) Fields {
	keys := []Fields{}
	for _, key := range node.Keys {
		keys = append(keys, Fields{"public": key.Public, "epoch": key.Epoch, "port": key.Port})
	}
	return Fields{
		"apiVersion": "warren.network/v1alpha1", "kind": "WarrenNode", "metadata": Fields{"name": node.ID.Name},
		"spec": Fields{
			"cluster": node.ID.Cluster, "addresses": node.Addresses, "prefixes": node.Prefixes, "keys": keys, "issued": node.Issued,
			"capabilities": append([]string{}, node.Capabilities...), "version": node.Version,
		},
	}
}

// MakeMany makes the WarrenNodes from the first of many nodes to before the last, eight at a time.
func (c *Client) MakeMany(first, last int) error {
	var group errgroup.Group
	group.SetLimit(8)
	for i := first; i < last; i++ {
		group.Go(func() error {
			_, err := c.Do(http.MethodPost, Records, WarrenNode(Many(i)))
			return err
		})
	}
	return group.Wait()
}
