package kube

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"warren/internal/cluster"
	"warren/internal/discovery"
)

// picture is everything that was read, at one moment. A part that was not read yet is nil.
type picture struct {
	self    string // name of this machine's Node
	records map[string]record
	nodes   map[string]node // this machine's Node, or none
	pods    map[string][]netip.Addr
	servers map[string][]netip.AddrPort
	configs map[string]configuration // the one that counts, or none
	// faults are problems of reading and writing.
	faults []discovery.Problem
}

// complete reports whether every part was read.
func (p picture) complete() bool {
	return p.records != nil && p.nodes != nil && p.pods != nil && p.servers != nil && p.configs != nil
}

// state is what is believed after a picture, and was emitted. It is a value: next makes a new one. Parts
// that are nil were never emitted.
type state struct {
	synced   bool
	nodes    map[cluster.NodeID]*cluster.Node
	local    *discovery.Machine
	settings *[]discovery.Setting
	servers  *[]netip.AddrPort
	problems []discovery.Problem
	// node is the last Node that this machine had: what it said stays when it is gone.
	node *node
}

// next returns the state after a picture, and the events that lead there from s: what there is of the machine
// first, then records that appear or change before those that go, so that an address that moves has its new
// owner first.
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
	if p.records != nil {
		to.nodes = goodNodes(p.records)
	}
	to.problems = p.problems()
	to.synced = p.complete()
	return to, to.eventsSince(s)
}

func (s state) labels() map[string]string {
	if s.node == nil {
		return nil
	}
	return s.node.labels
}

// goodNodes returns the records that are believed. The name of an object is its machine's, so that no two
// objects speak for one machine.
func goodNodes(records map[string]record) map[cluster.NodeID]*cluster.Node {
	nodes := make(map[cluster.NodeID]*cluster.Node, len(records))
	for _, r := range records {
		if r.good != nil {
			nodes[r.good.ID] = r.good
		}
	}
	return nodes
}

// problems returns all of them, by place.
func (p picture) problems() []discovery.Problem {
	all := slices.Clone(p.faults)
	for _, r := range p.records {
		for i, problem := range r.problems {
			if i == 0 && r.good != nil {
				problem.Message += fmt.Sprintf(" (the record issued %s is kept)", r.good.Issued.Format(time.RFC3339))
			}
			all = append(all, problem)
		}
	}
	all = append(all, p.configs[configName].problems...)
	if _, ok := p.nodes[p.self]; !ok && p.nodes != nil {
		all = append(all, discovery.Problem{
			Where: "Node " + p.self, Message: "this machine has no Node, so that its record is not written",
			Remedy: "set node to the name that the kubelet registered, or wait until it has",
		})
	}
	slices.SortStableFunc(all, func(a, b discovery.Problem) int {
		return cmp.Or(cmp.Compare(a.Where, b.Where), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(all)
}

// eventsSince returns what leads a consumer from one state to s.
func (s state) eventsSince(from state) []discovery.Event {
	var events []discovery.Event
	add := func(e discovery.Event, news bool) {
		if news {
			events = append(events, e)
		}
	}
	if s.local != nil {
		add(discovery.Event{Kind: discovery.Local, Local: *s.local}, !reflect.DeepEqual(from.local, s.local))
	}
	if s.settings != nil {
		add(discovery.Event{Kind: discovery.Settings, Settings: *s.settings}, !reflect.DeepEqual(from.settings, s.settings))
	}
	if s.servers != nil {
		add(discovery.Event{Kind: discovery.APIServers, APIServers: *s.servers}, !reflect.DeepEqual(from.servers, s.servers))
	}
	events = append(events, changes(from.nodes, s.nodes)...)
	add(discovery.Event{Kind: discovery.Problems, Problems: s.problems}, !slices.Equal(from.problems, s.problems))
	add(discovery.Event{Kind: discovery.Synced}, s.synced && !from.synced)
	return events
}

// changes returns what leads from one set of records to another.
func changes(before, after map[cluster.NodeID]*cluster.Node) []discovery.Event {
	var events []discovery.Event
	for _, id := range sortedIDs(after) {
		if old, known := before[id]; !known || old != after[id] && !same(*old, *after[id]) {
			events = append(events, discovery.Event{Kind: discovery.Upsert, ID: id, Node: *after[id]})
		}
	}
	for _, id := range sortedIDs(before) {
		if _, still := after[id]; !still {
			events = append(events, discovery.Event{Kind: discovery.Delete, ID: id})
		}
	}
	return events
}

func sortedIDs(nodes map[cluster.NodeID]*cluster.Node) []cluster.NodeID {
	return slices.SortedFunc(maps.Keys(nodes), cluster.NodeID.Compare)
}
