package record

import (
	"cmp"
	"slices"

	"warren/internal/cluster"
	"warren/internal/discovery"
)

// Believed is what is believed of the records of a cluster. It is a value.
type Believed struct {
	// Synced: everything was read once.
	Synced bool
	// Slots are the places for records. A good record is in the place of its name, so that no two places
	// speak for one machine.
	Slots map[string]Slot
	// Servers is what the list of API servers says.
	Servers Servers
	// Problems are all of them, as emitted; see AllProblems.
	Problems []discovery.Problem
}

// Nodes returns the records that are believed.
func (b Believed) Nodes() map[cluster.NodeID]*cluster.Node {
	nodes := make(map[cluster.NodeID]*cluster.Node, len(b.Slots))
	for _, slot := range b.Slots {
		if slot.good != nil {
			nodes[slot.good.ID] = slot.good
		}
	}
	return nodes
}

// AllProblems returns those of the records and of the list, and the others, in order.
func (b Believed) AllProblems(others ...discovery.Problem) []discovery.Problem {
	all := append(slices.Clone(others), b.Servers.problems...)
	for _, slot := range b.Slots {
		all = append(all, slot.Problems()...)
	}
	slices.SortStableFunc(all, func(a, b discovery.Problem) int {
		return cmp.Or(cmp.Compare(a.Where, b.Where), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(all)
}

// EventsSince returns what leads a consumer from one state to b: records that appear or change before those
// that go, so that an address that moves has its new owner first; each by name.
func (b Believed) EventsSince(from Believed) []discovery.Event {
	var events []discovery.Event
	before, after := from.Nodes(), b.Nodes()
	for _, id := range sortedIDs(after, func(id cluster.NodeID, node *cluster.Node) bool {
		old, known := before[id]
		return !known || old != node && !Same(*old, *node)
	}) {
		events = append(events, discovery.Event{Kind: discovery.Upsert, ID: id, Node: *after[id]})
	}
	if !slices.Equal(from.Servers.good, b.Servers.good) {
		events = append(events, discovery.Event{Kind: discovery.APIServers, APIServers: b.Servers.good})
	}
	for _, id := range sortedIDs(before, func(id cluster.NodeID, _ *cluster.Node) bool { return after[id] == nil }) {
		events = append(events, discovery.Event{Kind: discovery.Delete, ID: id})
	}
	if !slices.Equal(from.Problems, b.Problems) {
		events = append(events, discovery.Event{Kind: discovery.Problems, Problems: b.Problems})
	}
	if b.Synced && !from.Synced {
		events = append(events, discovery.Event{Kind: discovery.Synced})
	}
	return events
}

// sortedIDs returns those of the nodes that are chosen; few of many, as a rule.
func sortedIDs(nodes map[cluster.NodeID]*cluster.Node, chosen func(cluster.NodeID, *cluster.Node) bool) []cluster.NodeID {
	var ids []cluster.NodeID
	for id, node := range nodes {
		if chosen(id, node) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, cluster.NodeID.Compare)
	return ids
}
