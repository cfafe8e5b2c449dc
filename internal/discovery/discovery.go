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
	// It never waits for a network: an engine across one writes from Run's goroutines.
	Publish(ctx context.Context, node cluster.Node) error
	// Withdraw takes the record away, and nothing that is another machine's. No record is no error.
	Withdraw(ctx context.Context) error
}

// Reporter shows this machine's state where the records are. An engine may be one.
type Reporter interface {
	// Report makes the report visible some time later, as the engine can bear, from Run's goroutines. It
	// does not wait, and may be called with the same report again.
	Report(report Report)
}

// Report is how this machine is doing, in the words of its status.
type Report struct {
	// Mode that the machine works in: observe, permissive or strict. It comes to the one that is configured when its
	// peers have, too.
	Mode string
	// Version of the agent.
	Version string
	// MTU of the WireGuard device in bytes; 0 while there is none.
	MTU int
	// Peers is how many there are, Confirmed how many of them are encrypted to.
	Peers, Confirmed int
	// Looking: the agent knows no peer, and has not looked for as long as it takes others that start meanwhile to be seen.
	Looking bool
	// Ready: the agent has done all that it knows of. NotReady says what it waits for.
	Ready    bool
	NotReady string
	// KeyRotating: a key is being replaced.
	KeyRotating bool
	// Refused are the settings of the engine that do not count, with the reason as Message.
	Refused []Problem
}

// Kind is what an event says.
type Kind uint8

// The kinds. The zero value is not a kind.
const (
	// Upsert: ID's record is Node, whole, whatever it was before.
	Upsert Kind = iota + 1
	// Delete: ID has no record any more. Comes only for what was upserted, or has Left, never from a loss.
	Delete
	// Synced: everything there is was emitted once. Comes once, after the first complete reading.
	Synced
	// APIServers: APIServers is all of them now; empty when there are none.
	APIServers
	// Problems: Problems is all that is wrong now, whatever it was before; empty when all is well.
	Problems
	// Local: Local is what the engine says of this machine. Comes before Synced, when it comes at all.
	Local
	// Settings: Settings is all that the engine says of how this machine's agent is configured; empty
	// when nothing. Comes before Synced, when it comes at all.
	Settings
	// Servers: Servers is where the engine itself is reached. Comes before the engine is reached first.
	Servers
)

var kindNames = [...]string{
	Upsert: "upsert", Delete: "delete", Synced: "synced", APIServers: "api-servers", Problems: "problems", Local: "local", Settings: "settings",
	Servers: "servers",
}

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
	// Left belongs to Delete: the machine's record was withdrawn, and has not merely gone missing. Such an
	// event may be of a machine that nobody had heard of.
	Left bool
	// Node is the record of an Upsert, not to be changed. The own record is emitted like any other.
	Node cluster.Node
	// APIServers belongs to the kind of that name: where the API server is reached, in order.
	APIServers []netip.AddrPort
	// Servers belongs to the kind of that name: in order.
	Servers []netip.AddrPort
	// Problems belongs to the kind of that name; ordered by place.
	Problems []Problem
	// Local belongs to the kind of that name.
	Local Machine
	// Settings belongs to the kind of that name; each key once, in the order of the keys.
	Settings []Setting
}

// Machine is what an engine says of the machine that it runs on.
type Machine struct {
	// Addresses are its own ones on the underlay, the preferred one of each family first. None: the
	// engine does not say.
	Addresses []netip.Addr
	// Prefixes are what lives behind it, besides what its configuration says; in order.
	Prefixes []netip.Prefix
}

// Setting is one value of the configuration.
type Setting struct {
	// Key is the configuration's, "mode"; Value is as its flag reads it; lists are separated by commas.
	Key   string `json:"key"`
	Value string `json:"value"`
	// Where is the place that says so: "WarrenConfig default: spec.mode".
	Where string `json:"where"`
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
