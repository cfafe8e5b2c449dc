package kube

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"warren/internal/cluster"
	"warren/internal/discovery"
	"warren/internal/yamldoc"
)

// recordSpec is the spec of a WarrenNode. Its texts are read one by one, so that a problem names its field.
type recordSpec struct {
	Cluster      string      `json:"cluster"`
	Addresses    []string    `json:"addresses"`
	Prefixes     []string    `json:"prefixes"`
	Keys         []recordKey `json:"keys"`
	Issued       string      `json:"issued"`
	Capabilities []string    `json:"capabilities"`
	Version      string      `json:"version"`
}

type recordKey struct {
	Public string `json:"public"`
	Epoch  uint32 `json:"epoch"`
	Port   uint16 `json:"port"`
}

// specOf writes a node, always the same for the same node: keys by epoch, the time in whole seconds of UTC.
func specOf(node cluster.Node) recordSpec {
	spec := recordSpec{
		Cluster: node.ID.Cluster, Addresses: texts(node.Addresses), Prefixes: texts(node.Prefixes), Keys: []recordKey{},
		Issued: node.Issued.UTC().Format(time.RFC3339), Capabilities: append([]string{}, node.Capabilities...), Version: node.Version,
	}
	for _, key := range node.Keys {
		spec.Keys = append(spec.Keys, recordKey{Public: key.Public.String(), Epoch: key.Epoch, Port: key.Port})
	}
	slices.SortStableFunc(spec.Keys, func(a, b recordKey) int { return cmp.Compare(a.Epoch, b.Epoch) })
	return spec
}

// texts is never nil: an empty list is said, so that nobody else can own the field.
func texts[T fmt.Stringer](values []T) []string {
	list := make([]string, 0, len(values))
	for _, v := range values {
		list = append(list, v.String())
	}
	return list
}

// same reports whether two nodes have the same record.
func same(a, b cluster.Node) bool {
	return slices.Equal(encode(specOf(a)), encode(specOf(b)))
}

func encode(spec recordSpec) []byte {
	text, err := json.Marshal(spec)
	if err != nil {
		panic(fmt.Sprintf("write a record of texts and numbers: %v", err))
	}
	return text
}

// decodeRecord reads the record of the machine called name. The error is yamldoc.Problems: every problem at
// once, with the field as Key.
func decodeRecord(name string, text []byte) (cluster.Node, error) {
	var spec recordSpec
	if problems := decodeStrictly(text, &spec); len(problems) > 0 {
		return cluster.Node{}, problems
	}
	node, problems := spec.node(name)
	if len(problems) == 0 {
		problems = yamldoc.ExplainAll(discovery.CheckRecord(node))
	}
	return node, within("spec", problems).Err()
}

// decodeStrictly reads JSON in which every field is known and none is given twice.
func decodeStrictly(text []byte, into any) yamldoc.Problems {
	if len(text) == 0 {
		text = []byte("{}")
	}
	strict, err := kjson.UnmarshalStrict(text, into, kjson.DisallowDuplicateFields, kjson.DisallowUnknownFields)
	if err != nil {
		strict = []error{err}
	}
	var problems yamldoc.Problems
	for _, err := range strict {
		problems = append(problems, yamldoc.Problem{Key: "spec", Message: err.Error()})
	}
	return problems
}

func within(parent string, problems yamldoc.Problems) yamldoc.Problems {
	for i := range problems {
		problems[i].Key = parent + "." + problems[i].Key
	}
	return problems
}

// node reads the texts.
func (s recordSpec) node(name string) (cluster.Node, yamldoc.Problems) {
	var problems yamldoc.Problems
	note := func(err error, format string, args ...any) {
		if err != nil {
			p := yamldoc.Explain(err)
			p.Key = fmt.Sprintf(format, args...)
			problems = append(problems, p)
		}
	}
	node := cluster.Node{ID: cluster.NodeID{Cluster: s.Cluster, Name: name}, Capabilities: s.Capabilities, Version: s.Version}
	for i, text := range s.Addresses {
		addr, err := netip.ParseAddr(text)
		note(err, "addresses[%d]", i)
		node.Addresses = append(node.Addresses, addr)
	}
	for i, text := range s.Prefixes {
		prefix, err := netip.ParsePrefix(text)
		note(err, "prefixes[%d]", i)
		node.Prefixes = append(node.Prefixes, prefix)
	}
	for i, key := range s.Keys {
		public, err := cluster.ParsePublicKey(key.Public)
		note(err, "keys[%d].public", i)
		node.Keys = append(node.Keys, cluster.Key{Public: public, Epoch: key.Epoch, Port: key.Port})
	}
	slices.SortStableFunc(node.Keys, func(a, b cluster.Key) int { return cmp.Compare(a.Epoch, b.Epoch) })
	issued, err := time.Parse(time.RFC3339, s.Issued)
	note(err, "issued")
	node.Issued = issued.UTC().Truncate(time.Second)
	return node, problems
}

// record is what a WarrenNode has said so far.
type record struct {
	sum [sha256.Size]byte // of the spec that was decoded last
	// says is what the object says now, nil when that is no record; good is the last that was one. Neither
	// is ever changed.
	says, good *cluster.Node
	problems   []discovery.Problem
	// uid is the object's; owners are the Nodes that it belongs to.
	uid    types.UID
	owners []types.UID
	// status of the own object, as read.
	status json.RawMessage
}

// records decodes WarrenNodes. own is the name of the one whose status is of interest.
func records(own string) func(*object, record) record {
	return func(o *object, before record) record {
		r := before.read(o)
		r.uid, r.owners, r.status = o.UID, nil, nil
		for _, owner := range o.OwnerReferences {
			r.owners = append(r.owners, owner.UID)
		}
		if o.Name == own {
			r.status = o.Status
		}
		return r
	}
}

// read returns the record after the object was read; one that does not say what it should leaves the last
// good one.
func (r record) read(o *object) record {
	sum := sha256.Sum256(append([]byte(strangeOwner(o)+"\n"), o.Spec...))
	if sum == r.sum {
		return r
	}
	node, err := decodeRecord(o.Name, o.Spec)
	if owner := strangeOwner(o); err == nil && owner != "" {
		err = yamldoc.Problems{{
			Key: "metadata.ownerReferences", Message: fmt.Sprintf("this is the record of Node %s under another name", owner), Remedy: "delete it",
		}}
	}
	if err != nil {
		problems := problemsOf(kindNode+" "+o.Name, err.(yamldoc.Problems), "correct it, or delete the object: its agent writes it again")
		return record{sum: sum, good: r.good, problems: problems}
	}
	return record{sum: sum, says: &node, good: &node}
}

// strangeOwner returns the name of a Node that owns the object and is called otherwise, "" when there is none.
func strangeOwner(o *object) string {
	for _, owner := range o.OwnerReferences {
		if owner.Kind == "Node" && owner.APIVersion == core.String() && owner.Name != o.Name {
			return owner.Name
		}
	}
	return ""
}

// problemsOf turns problems of an object into what the source emits.
func problemsOf(where string, found yamldoc.Problems, remedy string) []discovery.Problem {
	var problems []discovery.Problem
	for _, p := range found {
		problems = append(problems, discovery.Problem{Where: where + ": " + p.Key, Message: p.Message, Remedy: cmp.Or(p.Remedy, remedy)})
	}
	return problems
}
