// Package api is the vocabulary of the agent's local API and its client: HTTP with JSON over a unix
// socket that only root can open. Field names are stable: scripts read them.
//
//	client := api.Dial("/run/warren/agent.sock")
//	status, err := client.Status(ctx) // ErrNotRunning when no agent listens
package api

import (
	"net/netip"
	"time"

	"warren/internal/cluster"
)

// SocketName is the file name of the agent's socket inside its run directory.
const SocketName = "agent.sock"

// Status is the agent's whole state in one page: GET /v1/status.
type Status struct {
	Version  string    `json:"version"`
	Node     string    `json:"node"`
	Cluster  string    `json:"cluster"`
	PID      int       `json:"pid"`
	Started  time.Time `json:"started"`
	Ready    bool      `json:"ready"`
	NotReady []string  `json:"not_ready"`
	Mode     string    `json:"mode"`
	// ModeSource is who chose the mode: ModeConfigured or ModeCommanded.
	ModeSource string   `json:"mode_source"`
	Ingress    string   `json:"ingress"`
	PublicKey  string   `json:"public_key"`
	Addresses  []string `json:"addresses"`
	Prefixes   []string `json:"prefixes"`
	// Exempt is what stays in clear in every mode, as the configuration says it.
	Exempt []string `json:"exempt"`
	Device Device   `json:"device"`
	// Devices are all of this node's WireGuard devices; more than one while a key of it or of a peer
	// is replaced, and as long as some nodes have replaced theirs oftener than others.
	Devices  []Device   `json:"devices"`
	Rotation Rotation   `json:"rotation"`
	Underlay []Underlay `json:"underlay"`
	Peers    []Peer     `json:"peers"`
	Entries  int        `json:"entries"`
	Reasons  []Reason   `json:"reasons"`
	Problems []Problem  `json:"problems"`
}

// Mode is how strict a node is: GET, PUT and DELETE /v1/mode.
type Mode struct {
	Mode       string `json:"mode"`       // in force; PUT needs only this
	Source     string `json:"source"`     // ModeConfigured or ModeCommanded
	Configured string `json:"configured"` // what the configuration says
}

// Who chose a mode.
const (
	ModeConfigured = "configuration"
	ModeCommanded  = "command"
)

// Leave is how far a node is on its way out of the cluster: GET, POST and DELETE /v1/leave.
type Leave struct {
	Stage   string   `json:"stage"`   // "" while it stays
	Waiting []string `json:"waiting"` // nodes that the stage waits for
	Late    []string `json:"late"`    // nodes that it did not wait for any longer
}

// The stages.
const (
	LeaveAnnounced = "announced" // the record says that the node leaves; it encrypts on until the peers accept clear packets
	LeaveWithdrawn = "withdrawn" // the record is gone; it decrypts on until the peers have let go
	LeaveDone      = "done"      // nothing comes through the tunnel any more
)

// Rotation is this node's key and how far its replacement is: GET and POST /v1/rotation.
type Rotation struct {
	Epoch   uint32    `json:"epoch"`   // of the newest key; they count from 1
	Made    time.Time `json:"made"`    // when the newest key was made
	Keys    []Key     `json:"keys"`    // in this node's record, oldest first
	Stage   string    `json:"stage"`   // "" while there is one key
	Moved   []string  `json:"moved"`   // nodes that use the new key
	Waiting []string  `json:"waiting"` // nodes that do not use it yet
	Late    []string  `json:"late"`    // nodes that have had ten minutes to do so
}

// The stages.
const (
	RotationMoving    = "moving"    // both keys are published, and the peers move to the new one
	RotationWithdrawn = "withdrawn" // the new key is published alone; the old one decrypts what is under way
)

// LeaveRequest is the body of POST /v1/leave.
type LeaveRequest struct {
	PatienceSeconds float64 `json:"patience_seconds"` // for each stage
}

// Device is the WireGuard device as it is now.
type Device struct {
	Name   string `json:"name"`
	Engine string `json:"engine"` // "kernel", "userspace", "" while there is none
	Index  uint32 `json:"index"`
	MTU    int    `json:"mtu"`
	Port   uint16 `json:"port"`
	Mark   string `json:"mark"` // value/mask, "0x10/0x10"
	// PublicKey that it has, and its epoch.
	PublicKey string `json:"public_key"`
	Epoch     uint32 `json:"epoch"`
}

// Underlay is a device whose egress and ingress the datapath watches.
type Underlay struct {
	Name    string   `json:"name"`
	Index   uint32   `json:"index"`
	MTU     int      `json:"mtu"`
	Attach  string   `json:"attach"` // "tcx" or "clsact", "" while not attached
	Primary bool     `json:"primary"`
	Addrs   []string `json:"addresses"`
}

// Peer is another node as this one reaches it.
type Peer struct {
	Node          string     `json:"node"`
	Cluster       string     `json:"cluster"`
	PublicKey     string     `json:"public_key"`
	Epoch         uint32     `json:"epoch"`
	Endpoint      string     `json:"endpoint"`
	AllowedIPs    []string   `json:"allowed_ips"`
	LastHandshake *time.Time `json:"last_handshake"` // null before the first one
	ReceivedBytes uint64     `json:"received_bytes"`
	SentBytes     uint64     `json:"sent_bytes"`
	Installed     bool       `json:"installed"` // the WireGuard device has the peer
	// State: "configured" until it has answered through the tunnel, then "confirmed"; "stale" and
	// "down" while it answers no more.
	State      string    `json:"state"`
	Since      time.Time `json:"since"`      // of the state
	Encrypting bool      `json:"encrypting"` // packets to it are encrypted
	Enforcing  bool      `json:"enforcing"`  // strict mode: clear packets from it are dropped
	Mode       string    `json:"mode"`       // that the peer is in, "" before it has said so
	RTT        float64   `json:"rtt_ms"`     // smoothed, 0: not measured
	Loss       float64   `json:"loss"`       // share of its last probes, 0 to 1
	MTU        int       `json:"mtu"`        // largest packet that the tunnel carries whole to it, bytes
	PathMTU    int       `json:"path_mtu"`   // of the underlay between the two, bytes; 0: not measured
}

// Node is a record as discovery brought it, or as an earlier agent of this node knew it, with what became of it: GET /v1/nodes.
type Node struct {
	Name         string         `json:"name"`
	Cluster      string         `json:"cluster"`
	Self         bool           `json:"self"`
	Addresses    []netip.Addr   `json:"addresses"`
	Prefixes     []netip.Prefix `json:"prefixes"`
	Keys         []Key          `json:"keys"`
	Issued       time.Time      `json:"issued"`
	Capabilities []string       `json:"capabilities"`
	Version      string         `json:"version"`
	State        string         `json:"state"`   // "peer", "self", "refused", "held", "remembered"
	Problem      string         `json:"problem"` // why it is refused, held or remembered, else ""
}

// Key is one public key of a node.
type Key struct {
	Public string `json:"public"`
	Epoch  uint32 `json:"epoch"`
	Port   uint16 `json:"port"`
}

// Entry is one line of the IPCache: GET /v1/ipcache.
type Entry struct {
	Prefix   netip.Prefix `json:"prefix"`
	Identity uint32       `json:"identity"`
	Labels   []string     `json:"labels"`
	Endpoint string       `json:"endpoint"` // "" when nobody said how to reach it
	Key      uint8        `json:"key"`      // 0 with an endpoint: "do not encrypt"
	HasPair  bool         `json:"has_pair"`
	Owner    string       `json:"owner"`
	Flags    []string     `json:"flags"` // "node", "local"
}

// EntryDetail is an entry with all that is known of it: GET /v1/ipcache/{address}.
type EntryDetail struct {
	Entry
	Address string      `json:"address"`
	Facts   []Fact      `json:"facts"`  // strongest first
	Fields  []FieldFrom `json:"fields"` // which field came from which fact
	Kernel  *Entry      `json:"kernel"` // what the datapath's map holds; null when nothing
	Agree   bool        `json:"agree"`  // kernel and agent hold the same
}

// Fact is one statement of one resource.
type Fact struct {
	Prefix   netip.Prefix   `json:"prefix"`
	Source   cluster.Source `json:"source"`
	Resource string         `json:"resource"`
	Issued   *time.Time     `json:"issued"`
	Labels   []string       `json:"labels"`
	Endpoint string         `json:"endpoint"`
	Key      uint8          `json:"key"`
	HasPair  bool           `json:"has_pair"`
	Owner    string         `json:"owner"`
	Flags    []string       `json:"flags"`
}

// FieldFrom names the fact that a field of an entry came from.
type FieldFrom struct {
	Field    string         `json:"field"`
	Source   cluster.Source `json:"source"`
	Resource string         `json:"resource"`
}

// Conflict is a disagreement of facts about a prefix: GET /v1/conflicts.
type Conflict struct {
	Prefix netip.Prefix `json:"prefix"`
	Field  string       `json:"field"` // "owner", "pair"
	Winner Fact         `json:"winner"`
	Losers []Fact       `json:"losers"`
}

// Delta is one change of the IPCache: GET /v1/ipcache/watch sends one per line, first the entries that
// there are.
type Delta struct {
	Time   time.Time    `json:"time"`
	Prefix netip.Prefix `json:"prefix"`
	Old    *Entry       `json:"old"` // null: it is new
	New    *Entry       `json:"new"` // null: it is gone
}

// Explanation is what the datapath of this node does with a packet: GET /v1/explain.
type Explanation struct {
	Source      string   `json:"source"`
	Destination string   `json:"destination"`
	Protocol    string   `json:"protocol"`
	Port        uint16   `json:"port"`
	SourceEntry *Entry   `json:"source_entry"`      // null: not in the cluster
	DestEntry   *Entry   `json:"destination_entry"` // null: not in the cluster
	Steps       []Step   `json:"steps"`
	Agree       bool     `json:"agree"` // model and kernel agree in every step
	Notes       []string `json:"notes"`
}

// Step is one program that the packet meets, judged twice.
type Step struct {
	Program     string  `json:"program"`
	Hook        string  `json:"hook"`  // where it runs, in words
	Model       Verdict `json:"model"` // by the Go model, from the agent's state
	Kernel      Verdict `json:"kernel"`
	Description string  `json:"description"`
}

// Verdict is what becomes of a packet and why.
type Verdict struct {
	Verdict string `json:"verdict"` // "pass", "drop", "tunnel", "hand-back"
	Reason  string `json:"reason"`
}

// Reason is one way out of the datapath and how often it was taken.
type Reason struct {
	Program     string `json:"program"`
	Reason      string `json:"reason"`
	Packets     uint64 `json:"packets"`
	Bytes       uint64 `json:"bytes"`
	Description string `json:"description"`
}

// Problem is something an operator has to mend; it goes when it is mended.
type Problem struct {
	Where   string    `json:"where"`
	Message string    `json:"message"`
	Remedy  string    `json:"remedy"`
	Since   time.Time `json:"since"`
}
