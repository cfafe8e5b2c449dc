package identity

import (
	"net/netip"
	"strings"
)

const cidrSource = "cidr:"

// CIDRLabel returns the label that names a prefix outside of the cluster: "cidr:10.0.0.0/8".
func CIDRLabel(prefix netip.Prefix) string { return cidrSource + prefix.String() }

// Complete turns the labels that facts state about a prefix into the labels it has. owned says that a
// machine of the cluster owns the prefix. In this order:
//
//   - the host is not a remote node, whoever says so;
//   - what has a label of its own is not unmanaged; reserved: words that only say where it is, cidr:
//     labels and reserved:kube-apiserver are none;
//   - what a machine owns, or a machine label or reserved:unmanaged describes, is in the cluster: it
//     is neither the world nor a CIDR;
//   - everything else that runs the API server or has a cidr: label is a CIDR of the world, an API
//     server the one of its own prefix; of several cidr: labels the most specific stays;
//   - what then says nothing, or no more than that it runs the API server, is unmanaged.
//
// Completing labels a second time changes nothing.
func Complete(prefix netip.Prefix, stated Labels, owned bool) Labels {
	if stated.IsEmpty() {
		return Labels{LabelUnmanaged}
	}
	is, labels := describe(stated), stated
	if is.host && is.remoteNode {
		labels = labels.without(LabelRemoteNode)
	}
	if is.unmanaged && is.labelled {
		labels, is.unmanaged = labels.without(LabelUnmanaged), false
	}
	inCluster := owned || is.machine || is.unmanaged
	switch {
	case inCluster && (is.world || is.cidr):
		labels = labels.Filter(func(label string) bool { return label != LabelWorld && !isCIDR(label) })
	case !inCluster && is.apiServer:
		labels = mostSpecificCIDR(labels.Union(NewLabels(CIDRLabel(prefix), LabelWorld)))
	case !inCluster && is.cidr:
		labels = mostSpecificCIDR(labels.Union(Labels{LabelWorld}))
	}
	if labels.IsEmpty() || labels == (Labels{LabelKubeAPIServer}) {
		labels = labels.Union(Labels{LabelUnmanaged})
	}
	return labels
}

// Reserved returns the reserved number of completed labels. ok is false for labels that need a local
// number (Allocator).
func Reserved(labels Labels) (number Number, ok bool) {
	is := describe(labels)
	switch {
	case is.host:
		return Host, true
	case is.remoteNode && is.apiServer:
		return KubeAPIServer, true
	case is.remoteNode:
		return RemoteNode, true
	case is.machine && labels.Has(LabelHealth):
		return Health, true
	case is.machine && labels.Has(LabelIngress):
		return Ingress, true
	case is.machine: // what is left of the machine labels
		return Init, true
	case labels == Labels{LabelUnmanaged}:
		return Unmanaged, true
	case labels == Labels{LabelWorld}:
		return World, true
	}
	return Unknown, false
}

// Outside reports whether completed labels say no more of a thing than that it is out of the cluster, whether it runs
// the API server or not.
func Outside(labels Labels) bool {
	is := describe(labels)
	return is.world && !is.labelled
}

// Inheritable returns those of the labels stated about a prefix that hold for every address in it.
// Machine labels describe one address and stay where they were stated.
func Inheritable(stated Labels) Labels {
	if !describe(stated).machine {
		return stated
	}
	return stated.Filter(func(label string) bool { return !isMachine(label) })
}

// description is what the labels of a set amount to; labelled means that one of them says what the
// thing at the address is.
type description struct{ host, remoteNode, machine, unmanaged, world, apiServer, cidr, labelled bool }

func describe(labels Labels) description {
	var is description
	for label := range labels.All() {
		switch {
		case label == LabelUnmanaged:
			is.unmanaged = true
		case label == LabelWorld:
			is.world = true
		case label == LabelKubeAPIServer:
			is.apiServer = true
		case isCIDR(label):
			is.cidr = true
		default:
			is.labelled = true
			is.machine = is.machine || isMachine(label)
			is.host = is.host || label == LabelHost
			is.remoteNode = is.remoteNode || label == LabelRemoteNode
		}
	}
	return is
}

// isMachine reports whether a label describes one address of, or on, one machine.
func isMachine(label string) bool {
	switch label {
	case LabelHost, LabelRemoteNode, LabelHealth, LabelIngress, LabelInit:
		return true
	}
	return false
}

func isCIDR(label string) bool { return strings.HasPrefix(label, cidrSource) }

// mostSpecificCIDR keeps of several cidr: labels the longest prefix; of equally long ones, which only
// facts that contradict each other can state, the one that sorts first.
func mostSpecificCIDR(labels Labels) Labels {
	best, bestBits := "", -2
	for label := range labels.All() {
		if isCIDR(label) && cidrBits(label) > bestBits {
			best, bestBits = label, cidrBits(label)
		}
	}
	return labels.Filter(func(label string) bool { return !isCIDR(label) || label == best })
}

// cidrBits returns the prefix length of a cidr: label, -1 when it does not parse.
func cidrBits(label string) int {
	prefix, err := netip.ParsePrefix(strings.TrimPrefix(label, cidrSource))
	if err != nil {
		return -1
	}
	return prefix.Bits()
}

func (l Labels) without(label string) Labels {
	return l.Filter(func(have string) bool { return have != label })
}
