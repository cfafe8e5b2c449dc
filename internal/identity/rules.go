package identity

import (
	"net/netip"
	"strings"
)

const cidrSource = "cidr:"

// CIDRLabel returns the label that names a prefix outside of the cluster: "cidr:10.0.0.0/8".
func CIDRLabel(prefix netip.Prefix) string { return cidrSource + prefix.String() }

// Complete turns the labels that facts state about a prefix into the labels it has. inCluster says
// that a machine of the cluster owns the prefix. In this order:
//
//   - the host is not a remote node, whoever says so;
//   - what a machine owns, or a machine label describes, is in the cluster: it is neither the world
//     nor a CIDR;
//   - everything else that runs the API server, or is labelled as a CIDR, is a CIDR of the world;
//     the most specific cidr: label stays;
//   - what then says no more than "runs the API server", or nothing, is unmanaged.
func Complete(prefix netip.Prefix, stated Labels, inCluster bool) Labels {
	if stated.IsEmpty() {
		return Labels{LabelUnmanaged}
	}
	described := describe(stated)
	if described.host {
		stated = stated.without(LabelRemoteNode)
	}
	switch {
	case inCluster || described.machine:
		stated = stated.Filter(func(label string) bool { return label != LabelWorld && !isCIDR(label) })
	case described.apiServer:
		stated = mostSpecificCIDR(stated.Union(NewLabels(LabelWorld, CIDRLabel(prefix))))
	case described.cidr:
		stated = mostSpecificCIDR(stated.Union(Labels{LabelWorld}))
	}
	return unmanagedIfNothingElse(stated)
}

// Reserved returns the reserved number of completed labels. ok is false for labels that need a local
// number (Allocator).
func Reserved(labels Labels) (number Number, ok bool) {
	described := describe(labels)
	switch {
	case described.host:
		return Host, true
	case described.remoteNode && described.apiServer:
		return KubeAPIServer, true
	case described.remoteNode:
		return RemoteNode, true
	case labels.Has(LabelHealth):
		return Health, true
	case labels.Has(LabelIngress):
		return Ingress, true
	case labels.Has(LabelInit):
		return Init, true
	case labels == Labels{LabelUnmanaged}:
		return Unmanaged, true
	case labels == Labels{LabelWorld}:
		return World, true
	}
	return Unknown, false
}

// Inheritable returns those of the labels stated about a prefix that hold for every address in it.
// Machine labels describe one address and stay where they were stated.
func Inheritable(stated Labels) Labels {
	if !describe(stated).machine {
		return stated
	}
	return stated.Filter(func(label string) bool { return !isMachine(label) })
}

// description is what the reserved labels of a set amount to.
type description struct{ host, remoteNode, machine, apiServer, cidr bool }

func describe(labels Labels) description {
	var d description
	for label := range labels.All() {
		d.host = d.host || label == LabelHost
		d.remoteNode = d.remoteNode || label == LabelRemoteNode
		d.machine = d.machine || isMachine(label)
		d.apiServer = d.apiServer || label == LabelKubeAPIServer
		d.cidr = d.cidr || isCIDR(label)
	}
	return d
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

func unmanagedIfNothingElse(labels Labels) Labels {
	others := labels.without(LabelUnmanaged)
	if others.IsEmpty() || others == (Labels{LabelKubeAPIServer}) {
		return others.Union(Labels{LabelUnmanaged})
	}
	return others
}

func (l Labels) without(label string) Labels {
	return l.Filter(func(have string) bool { return have != label })
}
