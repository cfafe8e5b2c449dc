package kube

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"warren/internal/cluster"
	"warren/internal/discovery"
	"warren/internal/discovery/record"
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

func encode(spec recordSpec) []byte {
	text, err := json.Marshal(spec)
	if err != nil {
		panic(fmt.Sprintf("write a record of texts and numbers: %v", err))
	}
	return text
}

// decodeRecord reads the record of the machine called name, or returns every problem at once, with the field as
// Key.
func decodeRecord(name string, text []byte) (cluster.Node, yamldoc.Problems) {
	var spec recordSpec
	if problems := decodeStrictly(text, &spec); len(problems) > 0 {
		return cluster.Node{}, problems
	}
	node, problems := spec.node(name)
	if len(problems) == 0 {
		problems = check(node)
	}
	for i := range problems {
		problems[i].Key = "spec." + problems[i].Key
	}
	return node, problems
}

// check is record.Check in the words of a WarrenNode, whose version is that of the software.
func check(node cluster.Node) yamldoc.Problems {
	problems := record.Check(node)
	for i, p := range problems {
		if p.Key == "software" {
			problems[i].Key = "version"
		}
	}
	return problems
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
		addr, err := parsed(text, netip.ParseAddr, "an address; write one such as 192.0.2.1")
		note(err, "addresses[%d]", i)
		node.Addresses = append(node.Addresses, addr)
	}
	for i, text := range s.Prefixes {
		prefix, err := parsed(text, netip.ParsePrefix, "a prefix; write one such as 192.0.2.0/24")
		note(err, "prefixes[%d]", i)
		node.Prefixes = append(node.Prefixes, prefix)
	}
	for i, key := range s.Keys {
		public, err := cluster.ParsePublicKey(key.Public)
		note(err, "keys[%d].public", i)
		node.Keys = append(node.Keys, cluster.Key{Public: public, Epoch: key.Epoch, Port: key.Port})
	}
	slices.SortStableFunc(node.Keys, func(a, b cluster.Key) int { return cmp.Compare(a.Epoch, b.Epoch) })
	issued, err := parsed(s.Issued, parseTime, "a time; write one such as 2026-11-30T03:14:00Z")
	note(err, "issued")
	node.Issued = issued.UTC().Truncate(time.Second)
	return node, problems
}

func parsed[T any](text string, parse func(string) (T, error), what string) (T, error) {
	value, err := parse(text)
	if err != nil {
		err = fmt.Errorf("%.70q is not %s", text, what)
	}
	return value, err
}

func parseTime(text string) (time.Time, error) { return time.Parse(time.RFC3339, text) }

// entry is what a WarrenNode has said so far.
type entry struct {
	slot record.Slot
	// owners are the objects that it belongs to.
	owners []types.UID
	// status of the own object, as read.
	status json.RawMessage
}

// entries decodes WarrenNodes. own is the name of the one whose status is of interest.
func entries(own string) func(*object, entry) entry {
	return func(o *object, before entry) entry {
		e := entry{slot: readSlot(o, before.slot)}
		for _, owner := range o.OwnerReferences {
			e.owners = append(e.owners, owner.UID)
		}
		if o.Name == own {
			e.status = o.Status
		}
		return e
	}
}

func readSlot(o *object, before record.Slot) record.Slot {
	owner := strangeOwner(o)
	return before.Decode(append([]byte(owner+"\n"), o.Spec...), func() (cluster.Node, []discovery.Problem) {
		node, problems := decodeRecord(o.Name, o.Spec)
		if owner != "" {
			problems = append(problems, yamldoc.Problem{
				Key: "metadata.ownerReferences", Message: fmt.Sprintf("this is the record of Node %s under another name", owner), Remedy: "delete it",
			})
		}
		return node, problemsOf(kindNode+" "+o.Name, problems, "correct it, or delete the object: its agent writes it again")
	})
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
