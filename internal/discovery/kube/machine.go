package kube

import (
	"encoding/json"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"warren/internal/cluster"
	"warren/internal/discovery"
)

// node is what is read of this machine's Node.
type node struct {
	uid       types.UID
	labels    map[string]string
	addresses []netip.Addr   // InternalIPs, in order
	podCIDRs  []netip.Prefix // in order
}

// decodeNode reads a Node. The API server has validated it; what cannot be read all the same says nothing.
func decodeNode(o *object, _ node) node {
	var spec struct {
		PodCIDRs []string `json:"podCIDRs"`
	}
	var status struct {
		Addresses []struct {
			Type    string `json:"type"`
			Address string `json:"address"`
		} `json:"addresses"`
	}
	_ = json.Unmarshal(o.Spec, &spec)
	_ = json.Unmarshal(o.Status, &status)
	n := node{uid: o.UID, labels: o.Labels}
	for _, a := range status.Addresses {
		if a.Type == "InternalIP" {
			n.addresses = appendAddr(n.addresses, a.Address)
		}
	}
	for _, text := range spec.PodCIDRs {
		prefix, err := netip.ParsePrefix(text)
		if prefix = cluster.CanonicalPrefix(prefix); err == nil && cluster.ValidPrefix(prefix) == nil {
			n.podCIDRs = append(n.podCIDRs, prefix)
		}
	}
	return n
}

// appendAddr appends an address that other machines can send to, once.
func appendAddr(list []netip.Addr, text string) []netip.Addr {
	addr, err := netip.ParseAddr(text)
	addr = addr.Unmap()
	if err != nil || cluster.ValidUnicast(addr) != nil || slices.Contains(list, addr) {
		return list
	}
	return append(list, addr)
}

// decodePod reads the addresses of a pod: none of one that uses the machine's own network, and none of one
// that has ended, whose address another pod may have by now.
func decodePod(o *object, _ []netip.Addr) []netip.Addr {
	var spec struct {
		HostNetwork bool `json:"hostNetwork"`
	}
	var status struct {
		Phase  string `json:"phase"`
		PodIPs []struct {
			IP string `json:"ip"`
		} `json:"podIPs"`
	}
	_ = json.Unmarshal(o.Spec, &spec)
	_ = json.Unmarshal(o.Status, &status)
	if spec.HostNetwork || status.Phase == "Succeeded" || status.Phase == "Failed" {
		return nil
	}
	var addrs []netip.Addr
	for _, p := range status.PodIPs {
		addrs = appendAddr(addrs, p.IP)
	}
	return addrs
}

// machineOf returns what Node and pods say of this machine. The Node's podCIDRs are what lives behind it,
// unless it has none or a pod has an address elsewhere: then the network plugin allocates otherwise (from a
// cloud's subnet, from pools of its own), and only the pods themselves say where they are.
func machineOf(n node, pods map[string][]netip.Addr) discovery.Machine {
	m := discovery.Machine{Addresses: n.addresses, Prefixes: n.podCIDRs}
	var addrs []netip.Prefix
	elsewhere := len(n.podCIDRs) == 0
	for _, pod := range pods {
		for _, addr := range pod {
			if slices.Contains(n.addresses, addr) {
				continue // the machine's own, whatever the pod says of its network
			}
			addrs = append(addrs, cluster.HostPrefix(addr))
			inside := func(p netip.Prefix) bool { return p.Contains(addr) }
			elsewhere = elsewhere || !slices.ContainsFunc(n.podCIDRs, inside)
		}
	}
	if elsewhere {
		m.Prefixes = aggregate(addrs)
	}
	return m
}

// aggregate returns the shortest list of prefixes, in order, that has the addresses of those given and no
// others.
func aggregate(prefixes []netip.Prefix) []netip.Prefix {
	list := slices.Clone(prefixes)
	slices.SortFunc(list, netip.Prefix.Compare)
	var merged []netip.Prefix
	for _, p := range list {
		for len(merged) > 0 {
			last := merged[len(merged)-1]
			if last.Overlaps(p) { // the wider one comes first
				p = last
			} else if parent, ok := union(last, p); ok {
				p = parent
			} else {
				break
			}
			merged = merged[:len(merged)-1]
		}
		merged = append(merged, p)
	}
	return merged
}

// union returns the prefix of which a and b are the two halves.
func union(a, b netip.Prefix) (netip.Prefix, bool) {
	if a.Bits() != b.Bits() || a.Bits() == 0 || a.Addr().Is4() != b.Addr().Is4() {
		return netip.Prefix{}, false
	}
	parent := netip.PrefixFrom(a.Addr(), a.Bits()-1).Masked()
	return parent, parent.Contains(b.Addr())
}
