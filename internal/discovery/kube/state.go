package kube

import (
	"net/netip"
	"reflect"
	"slices"

	"warren/internal/discovery"
	"warren/internal/discovery/record"
)

// picture is everything that was read, at one moment. A part that was not read yet is nil.
type picture struct {
	self    string // name of this machine's Node
	records map[string]entry
	nodes   map[string]node // this machine's Node, or none
	pods    map[string][]netip.Addr
	servers map[string][]netip.AddrPort
	configs map[string]configuration // the one that counts, or none
	// troubles are the problems of reading and writing.
	troubles []discovery.Problem
}

// complete reports whether every part was read.
func (p picture) complete() bool {
	return p.records != nil && p.nodes != nil && p.pods != nil && p.servers != nil && p.configs != nil
}

// state is what is believed after a picture, and was emitted. It is a value: next makes a new one. Parts
// that are nil were never emitted.
type state struct {
	records  record.Believed // its servers are not used
	local    *discovery.Machine
	settings *[]discovery.Setting
	servers  *[]netip.AddrPort
	// node is the last Node that this machine had: what it said stays when it is gone.
	node *node
}

// next returns the state after a picture, and the events that lead there from s.
func (s state) next(p picture) (state, []discovery.Event) {
	to := s
	if n, ok := p.nodes[p.self]; ok {
		to.node = &n
	}
	if to.node != nil && p.pods != nil {
		local := machineOf(*to.node, p.pods)
		to.local = &local
	}
	if p.nodes != nil && p.configs != nil {
		settings := p.configs[configName].settings(to.labels())
		to.settings = &settings
	}
	if p.servers != nil {
		servers := serversOf(p.servers)
		to.servers = &servers
	}
	to.records = record.Believed{Synced: p.complete(), Slots: map[string]record.Slot{}}
	for name, e := range p.records {
		to.records.Slots[name] = e.slot
	}
	to.records.Problems = to.records.AllProblems(p.faults()...)
	return to, to.eventsSince(s)
}

func (s state) labels() map[string]string {
	if s.node == nil {
		return nil
	}
	return s.node.labels
}

// faults are the problems that are none of a record's.
func (p picture) faults() []discovery.Problem {
	all := slices.Concat(p.troubles, p.configs[configName].problems)
	if _, ok := p.nodes[p.self]; !ok && p.nodes != nil {
		all = append(all, discovery.Problem{
			Where: "Node " + p.self, Message: "this machine has no Node, so that its record is not written",
			Remedy: "set node to the name that the kubelet registered, or wait until it has",
		})
	}
	return all
}

// eventsSince returns what leads a consumer from one state to s: what there is to say of this machine and of the
// API servers, then records.
func (s state) eventsSince(from state) []discovery.Event {
	var events []discovery.Event
	if s.local != nil && !reflect.DeepEqual(from.local, s.local) {
		events = append(events, discovery.Event{Kind: discovery.Local, Local: *s.local})
	}
	if s.settings != nil && !reflect.DeepEqual(from.settings, s.settings) {
		events = append(events, discovery.Event{Kind: discovery.Settings, Settings: *s.settings})
	}
	if s.servers != nil && !reflect.DeepEqual(from.servers, s.servers) {
		events = append(events, discovery.Event{Kind: discovery.APIServers, APIServers: *s.servers})
	}
	return append(events, s.records.EventsSince(from.records)...)
}
