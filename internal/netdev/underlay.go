package netdev

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
)

// podDevices are the names that CNIs, container engines and kube-proxy give to the devices they
// make. Some of those carry addresses of the node (kube-ipvs0 the external ones, a bridge the
// gateway of its pods), and none of them leads to another machine.
var podDevices = []string{
	"antrea-*", "azv*", "cali*", "cbr0", "cilium_*", "cni[0-9]*", "cni-*", "docker0", "docker_gwbridge", "eni*", "flannel*",
	"gke*", "kube-bridge", "kube-dummy-if", "kube-ipvs0", "lxc*", "lxdbr*", "nerdctl*", "nodelocaldns", "ovn-k8s-*",
	"podman*", "tunl0", "virbr*", "weave",
}

// ownDevices are Warren's: warren0, and the next one during a key rotation.
const ownDevices = "warren*"

// tunnelKinds wrap packets and send them by another device. That one is the underlay: there the
// outer packet, between addresses of nodes, is seen and encrypted.
var tunnelKinds = []string{
	kindWireGuard, "vxlan", "geneve", "bareudp", "ipip", "sit", "ip6tnl", "gre", "gretap", "erspan", "ip6gre", "ip6gretap",
	"ip6erspan", "vti", "vti6", "xfrm", "gtp",
}

// Underlays returns, ordered by index, the devices on which clear packets to other machines can
// leave this one: those that carry one of addrs (the node's own addresses) and those whose name
// matches one of patterns (as in path.Match; both may be empty). A bridge, bond or VLAN device that
// carries the address is the underlay itself, its ports are not.
//
// Never an underlay, whatever the arguments say: the loopback and dummies, Warren's own devices,
// tunnels, ports of a bridge or bond, and devices of a CNI or container engine. A wildcard passes
// over them, and over TUN devices; a full name or an address that picks only such a device is an
// error that says why. It is an error, too, when nothing is left: a node without underlay would
// send everything in clear.
func Underlays(links []Link, addrs []netip.Addr, patterns []string) ([]Link, error) {
	view := newView(links)
	var problems []error
	var underlays []Link
	for _, pattern := range patterns {
		if _, err := path.Match(pattern, ""); err != nil {
			problems = append(problems, fmt.Errorf("underlay: pattern %q: %w", pattern, err))
		}
	}
	for _, link := range view.links {
		why := view.unfit(link)
		named := slices.Contains(patterns, link.Name)
		switch {
		case named && why != "":
			problems = append(problems, fmt.Errorf("underlay: %s cannot be one, it is %s", link.Name, why))
		case why == "" && (named || carriesAny(link, addrs) || matchesAny(link.Name, patterns) && view.guessable(link)):
			underlays = append(underlays, link)
		}
	}
	for _, addr := range addrs {
		problems = append(problems, view.misplaced(addr))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if len(underlays) == 0 {
		return nil, fmt.Errorf("no underlay device: no device that leads to other machines carries any of %v or matches %q; "+
			"%s; set `addresses:` to what they carry, or name them under `underlay:`", addrs, patterns, view.listCandidates())
	}
	return underlays, nil
}

// view is the links with what is asked of them together: who is whose master.
type view struct {
	links   []Link
	byIndex map[uint32]Link
}

func newView(links []Link) view {
	v := view{links: slices.Clone(links), byIndex: make(map[uint32]Link, len(links))}
	slices.SortFunc(v.links, func(a, b Link) int { return int(a.Index) - int(b.Index) })
	for _, link := range links {
		v.byIndex[link.Index] = link
	}
	return v
}

// The reasons of unfit that code branches on.
const (
	unfitLoopback = "the loopback"
	unfitDummy    = "a dummy, by which no packet leaves the machine"
)

// unfit says what keeps a link from ever being an underlay; "" when nothing does.
func (v view) unfit(link Link) string {
	switch {
	case link.Name == "lo":
		return unfitLoopback
	case matchesAny(link.Name, []string{ownDevices}):
		return "Warren's own"
	case slices.Contains(tunnelKinds, link.Kind):
		return fmt.Sprintf("a tunnel (%s), whose packets leave by another device", link.Kind)
	case matchesAny(link.Name, podDevices):
		return "a device of a CNI or container engine"
	case link.Kind == "dummy":
		return unfitDummy
	}
	if master, ok := v.byIndex[link.Master]; ok && master.Kind != kindVRF {
		return "a port of " + master.Name
	}
	return ""
}

// guessable says whether a link that nobody named may be taken for an underlay. TUN devices are
// VPNs and userspace tunnels, and a veth that still has the name it was born with is the host's end
// of a pod.
func (v view) guessable(link Link) bool {
	return v.unfit(link) == "" && link.Kind != kindTun &&
		!(link.Kind == kindVeth && strings.HasPrefix(link.Name, "veth")) && !v.local(link)
}

// local says whether a link is a bridge that leads only to namespaces of this machine, as every
// container engine makes them under names of its own: it has no port, or only veths.
func (v view) local(link Link) bool {
	return link.Kind == kindBridge && !slices.ContainsFunc(v.links, func(port Link) bool {
		return port.Master == link.Index && port.Kind != kindVeth
	})
}

// misplaced returns an error when an address is there, but only on devices that cannot be an
// underlay. An address that is nowhere yet is none; nor is one on the loopback or a dummy, where
// routed fabrics keep the node's address: the underlays are then named by patterns.
func (v view) misplaced(addr netip.Addr) error {
	var problem error
	for _, link := range v.links {
		if !link.HasAddr(addr) {
			continue
		}
		why := v.unfit(link)
		if why == "" || why == unfitLoopback || why == unfitDummy {
			return nil
		}
		problem = fmt.Errorf("address %s is on %s, which is %s: no other machine reaches the node by it; remove it from `addresses:`",
			addr, link.Name, why)
	}
	return problem
}

// candidates are the links that could be the underlay and have an address to publish.
func (v view) candidates() []Link {
	return slices.DeleteFunc(slices.Clone(v.links), func(link Link) bool {
		return !v.guessable(link) || len(publishable(link)) == 0
	})
}

// listCandidates is for errors: "candidates: eth0 (10.0.0.1), eth1 (10.1.0.1 fd00::1)".
func (v view) listCandidates() string {
	var texts []string
	for _, link := range v.candidates() {
		texts = append(texts, fmt.Sprintf("%s (%s)", link.Name, strings.Trim(fmt.Sprint(publishable(link)), "[]")))
	}
	if len(texts) == 0 {
		return "candidates: none"
	}
	return "candidates: " + strings.Join(texts, ", ")
}

func carriesAny(link Link, addrs []netip.Addr) bool { return slices.ContainsFunc(addrs, link.HasAddr) }

func matchesAny(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		matched, err := path.Match(pattern, name)
		return err == nil && matched
	})
}
