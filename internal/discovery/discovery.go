// Package discovery is how the machines of a cluster learn of each other: the words between the agent
// and the engines that carry the records. Each engine is a package below this one.
//
//	source := dir.New(dir.Options{Path: "/etc/warren/nodes", Self: id})
//	err := source.Run(ctx, func(event discovery.Event) { … }) // every record of the cluster, as it changes
//
// Loss of an engine freezes the state and never empties it: while a folder is gone or an API does not
// answer, a source emits Problems and no Delete.
package discovery

import (
	"context"
	"fmt"
	"net/netip"

	"warren/internal/cluster"
)

// Source tells what an engine knows, for as long as it runs.
type Source interface {
	// Run emits what is known, then every change, until ctx ends; then it returns nil. An error is
	// one that no retry can cure. Events are emitted one at a time from Run's own goroutine, and
	// emit may block.
	Run(ctx context.Context, emit func(Event)) error
}

// Publisher shows this machine's record to the others.
type Publisher interface {
	// Publish makes node the machine's record. The source keeps it so from then on: when somebody
	// alters or deletes it, it is written again. An error says why it is not there yet; it is retried.
	Publish(ctx context.Context, node cluster.Node) error
	// Withdraw takes the record away, and nothing that is another machine's. No record is no error.
	Withdraw(ctx context.Context) error
}

// Kind is what an event says.
type Kind uint8

// The kinds. The zero value is not a kind.
const (
	// Upsert: ID's record is Node, whole, whatever it was before.
	Upsert Kind = iota + 1
	// Delete: ID has no record any more. Comes only for what was upserted, never from a loss.
	Delete
	// Synced: everything there is was emitted once. Comes once, after the first complete reading.
	Synced
	// APIServers: APIServers is all of them now; empty when there are none.
	APIServers
	// Problems: Problems is all that is wrong now, whatever it was before; empty when all is well.
	Problems
)

var kindNames = [...]string{Upsert: "upsert", Delete: "delete", Synced: "synced", APIServers: "api-servers", Problems: "problems"}

// String returns the kind as logs show it.
func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Event is one change of what an engine knows. Events are levels, not steps: each carries the whole
// new value of what it is about, so that applying one twice changes nothing.
type Event struct {
	Kind Kind
	// ID is the machine of an Upsert or a Delete.
	ID cluster.NodeID
	// Node is the record of an Upsert, not to be changed. The own record is emitted like any other.
	Node cluster.Node
	// APIServers belongs to the kind of that name: where the API server is reached, in order.
	APIServers []netip.AddrPort
	// Problems belongs to the kind of that name; ordered by place.
	Problems []Problem
}

// Problem is something in the engine that a person must put right. It is data: a source emits it and
// does not log it.
type Problem struct {
	// Where is the place: "/etc/warren/nodes/n2.yaml:4:3", or the folder.
	Where string `json:"where"`
	// Message says what is wrong there.
	Message string `json:"message"`
	// Remedy says what to do about it.
	Remedy string `json:"remedy"`
}

// String returns "where: message; remedy".
func (p Problem) String() string { return p.Where + ": " + p.Message + "; " + p.Remedy }
