package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"warren/internal/cluster"
)

// Refusal is a record that does not become a peer, with what to do about it.
type Refusal struct {
	Node    cluster.NodeID
	Problem string
	Remedy  string
}

// Admission says which records become peers.
type Admission struct {
	// Peers are the admitted records in ID order. A node whose present record is refused is
	// here with its last admitted one: a bad record never removes a peer.
	Peers []*Record
	// Refused are the present records that were not admitted, in ID order.
	Refused []Refusal
	// Unreachable are records without any admitted version: their addresses are known to be
	// machines of the cluster, but nothing can be encrypted to them.
	Unreachable []*Record
	// Candidates are the refused records, in ID order, whose only fault is a key that the node's
	// last admitted record did not announce.
	Candidates []*Record
}

// KeyPolicy says what becomes of a known node whose record has none of the keys that its last admitted
// record had. The zero value accepts that.
type KeyPolicy struct {
	// Hold refuses such a record until its key is in Released: the old key goes on to count.
	Hold bool
	// Released has the one new key that each node may change to.
	Released map[cluster.NodeID]cluster.PublicKey
}

// Record is a node's record with the problems of its content, found once, since there can be many
// records with many prefixes and Admit looks at all of them. It never changes.
type Record struct {
	cluster.Node
	// Invalid is what Validate found; nil for a good record.
	Invalid error
}

// NewRecord validates the content of a record.
func NewRecord(node cluster.Node) *Record { return &Record{node, node.Validate()} }

// Admit decides which of the present records become peers of self. A record is refused when it is
// not valid, when it carries self's name with another key, or a key that self or another node
// already has, or no address of a family that self has, or a key that the policy holds.
//
// Of several nodes with one key the one in before (the peers of the last Admission) keeps it; among
// newcomers the older record has it, then the smaller ID. The result depends on nothing else.
func Admit(self cluster.Node, records, before []*Record, policy KeyPolicy) Admission {
	judge := newJudge(self, records, before)
	var admission Admission
	for _, record := range sortedByID(records) {
		if record.ID == self.ID && sameKeys(&record.Node, &self) {
			continue
		}
		refusal := judge.refuse(record)
		if refusal == nil && policy.holds(record, judge.before[record.ID]) {
			refusal = heldKey(record)
			admission.Candidates = append(admission.Candidates, record)
		}
		if refusal == nil {
			admission.Peers = append(admission.Peers, record)
			continue
		}
		refusal.Node = record.ID
		admission.Refused = append(admission.Refused, *refusal)
		if last, ok := judge.before[record.ID]; ok && judge.refuse(last) == nil {
			admission.Peers = append(admission.Peers, last)
		} else if record.ID != self.ID {
			admission.Unreachable = append(admission.Unreachable, record)
		}
	}
	return admission
}

// holds reports whether the record of a node that was last admitted, perhaps never (nil), is held.
func (p KeyPolicy) holds(record, last *Record) bool {
	key, _ := record.CurrentKey()
	announced := func(k cluster.Key) bool { return hasKey(&last.Node, k.Public) }
	return p.Hold && last != nil && !slices.ContainsFunc(record.Keys, announced) && p.Released[record.ID] != key.Public
}

func heldKey(record *Record) *Refusal {
	key, _ := record.CurrentKey()
	return &Refusal{
		Problem: fmt.Sprintf("its key has changed to %s…, which its old key did not announce", key.Public.Short()),
		Remedy: "nothing, if the machine was rebuilt: the new key counts as soon as it answers and the old one does not; " +
			"if both answer, two machines use this name, or somebody forges its record",
	}
}

type judge struct {
	self   cluster.Node
	before map[cluster.NodeID]*Record
	owners map[cluster.PublicKey]cluster.NodeID
}

func newJudge(self cluster.Node, records, before []*Record) *judge {
	j := &judge{
		self:   self,
		before: make(map[cluster.NodeID]*Record, len(before)),
		owners: make(map[cluster.PublicKey]cluster.NodeID, len(records)),
	}
	present := make(map[cluster.NodeID]bool, len(records))
	for _, record := range records {
		present[record.ID] = true
	}
	for _, node := range sortedByID(before) {
		if present[node.ID] {
			j.before[node.ID] = node
			j.claim(&node.Node)
		}
	}
	newcomers := sortedByID(records)
	slices.SortStableFunc(newcomers, func(a, b *Record) int { return a.Issued.Compare(b.Issued) })
	for _, record := range newcomers {
		if record.Invalid == nil {
			j.claim(&record.Node)
		}
	}
	return j
}

// claim gives the node those of its keys that nobody has yet.
func (j *judge) claim(node *cluster.Node) {
	for _, key := range node.Keys {
		if _, taken := j.owners[key.Public]; !taken {
			j.owners[key.Public] = node.ID
		}
	}
}

// refuse returns why the record cannot be a peer, or nil.
func (j *judge) refuse(record *Record) *Refusal {
	if record.Invalid != nil {
		return &Refusal{Problem: record.Invalid.Error(), Remedy: "correct the record of " + record.ID.Name}
	}
	if record.ID == j.self.ID {
		return &Refusal{
			Problem: "another machine publishes this node's name with another key",
			Remedy:  "give one of the two another name (node: in its configuration)",
		}
	}
	for _, key := range record.Keys {
		if hasKey(&j.self, key.Public) {
			return &Refusal{
				Problem: fmt.Sprintf("its key %s… is this node's own key", key.Public.Short()),
				Remedy:  "remove its private.key, so that it makes one of its own, and restart its agent",
			}
		}
		if owner := j.owners[key.Public]; owner != record.ID {
			return &Refusal{
				Problem: fmt.Sprintf("its key %s… already belongs to %s", key.Public.Short(), owner),
				Remedy:  fmt.Sprintf("remove the private.key of %s, so that it makes one of its own, and restart its agent; if it is %s under a new name, remove the old record", record.ID.Name, owner.Name),
			}
		}
	}
	if _, ok := EndpointOf(&j.self, &record.Node); !ok {
		return &Refusal{
			Problem: "it has no address of a family that this node has, other than this node's own",
			Remedy:  "give one of the two nodes an address of the other's family (addresses: in its configuration)",
		}
	}
	return nil
}

// EndpointOf returns the address at which self reaches the tunnel of the node: its first one of a
// family that self has and that is not self's own.
func EndpointOf(self, node *cluster.Node) (netip.Addr, bool) {
	for _, addr := range node.Addresses {
		sameFamily := func(own netip.Addr) bool { return own.Is4() == addr.Is4() }
		if slices.ContainsFunc(self.Addresses, sameFamily) && !slices.Contains(self.Addresses, addr) {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

func sortedByID(records []*Record) []*Record {
	// Issued breaks ties between two records of one ID, so that order of arrival never does.
	return slices.SortedFunc(slices.Values(records), func(a, b *Record) int {
		return cmp.Or(a.ID.Compare(b.ID), a.Issued.Compare(b.Issued))
	})
}

func sameKeys(a, b *cluster.Node) bool {
	return slices.EqualFunc(a.Keys, b.Keys, func(x, y cluster.Key) bool { return x.Public == y.Public })
}

func hasKey(node *cluster.Node, key cluster.PublicKey) bool {
	return slices.ContainsFunc(node.Keys, func(k cluster.Key) bool { return k.Public == key })
}
