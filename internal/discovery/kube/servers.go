package kube

import (
	"encoding/json"
	"net/netip"
	"slices"

	"warren/internal/cluster"
)

// decodeServers reads where an EndpointSlice of the Service default/kubernetes says that the API server is
// reached: every address with every TCP port.
func decodeServers(o *object, _ []netip.AddrPort) []netip.AddrPort {
	var ends []struct {
		Addresses  []string   `json:"addresses"`
		Conditions conditions `json:"conditions"`
	}
	var ports []struct {
		Protocol *string `json:"protocol"`
		Port     *uint16 `json:"port"`
	}
	_ = json.Unmarshal(o.Endpoints, &ends)
	_ = json.Unmarshal(o.Ports, &ports)
	var servers []netip.AddrPort
	for _, end := range ends {
		if !end.Conditions.serves() {
			continue
		}
		for _, text := range end.Addresses {
			addr, err := netip.ParseAddr(text) // a slice may have names (FQDN); they say nothing here
			if addr = addr.Unmap(); err != nil || cluster.ValidUnicast(addr) != nil {
				continue
			}
			for _, p := range ports {
				if p.Port != nil && *p.Port != 0 && (p.Protocol == nil || *p.Protocol == "TCP") {
					servers = append(servers, netip.AddrPortFrom(addr, *p.Port))
				}
			}
		}
	}
	return servers
}

// conditions of an endpoint: absent ones mean what the API says (discovery.k8s.io/v1 EndpointConditions).
type conditions struct {
	Ready   *bool `json:"ready"`
	Serving *bool `json:"serving"`
}

// serves reports whether the endpoint answers, also while it is about to end: serving defers to ready when
// it is absent, and an absent ready is true.
func (c conditions) serves() bool {
	for _, said := range []*bool{c.Serving, c.Ready} {
		if said != nil {
			return *said
		}
	}
	return true
}

// serversOf returns the servers of all slices, each once and in order.
func serversOf(slicesOf map[string][]netip.AddrPort) []netip.AddrPort {
	var all []netip.AddrPort
	for _, servers := range slicesOf {
		all = append(all, servers...)
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	return slices.Compact(all)
}
