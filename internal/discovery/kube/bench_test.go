package kube

import (
	"fmt"
	"maps"
	"testing"

	"warren/internal/discovery/record/recordtest"
)

// BenchmarkNext is one update among a thousand records: what an agent does twenty times a second in a cluster of that
// size in which every status changes.
func BenchmarkNext(b *testing.B) {
	now := picture{self: "n0"}
	withRecords()(&now)
	for i := range 1000 {
		node := recordtest.Sample(fmt.Sprintf("n%d", i), byte(i))
		now.records[node.ID.Name] = entries("n0")(shown(node, ""), entry{})
	}
	ownNode(nil)(&now)
	pods()(&now)
	servers()(&now)
	config("")(&now)
	believed, _ := state{}.next(now)
	one, other := recordtest.Sample("n7", 7), recordtest.Sample("n7", 8)
	for b.Loop() {
		one, other = other, one
		now.records = maps.Clone(now.records)
		now.records["n7"] = entries("n0")(shown(one, ""), now.records["n7"])
		believed, _ = believed.next(now)
	}
}
