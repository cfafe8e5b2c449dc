package record

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"warren/internal/cluster"
	"warren/internal/discovery"
	"warren/internal/yamldoc"
)

// Slot is what one place for a record has said so far. It is a value; the zero one has said nothing.
//
//	              good                    broken
//	nothing yet   its record              problem
//	good          its record              problem, record kept
//	broken        its record              problem, record kept
type Slot struct {
	sum      [sha256.Size]byte // of the text that was parsed last; zero for none
	good     *cluster.Node     // the last good record, never changed; nil for none
	problems []discovery.Problem
}

// Read returns the slot after the place, which belongs to the node of that name, said text. Text that was read
// before is not parsed again.
func (s Slot) Read(where, name string, text []byte) Slot {
	return s.Decode(text, func() (cluster.Node, []discovery.Problem) {
		node, err := Unmarshal(where, name, text)
		if err != nil {
			return node, problemsOf(err)
		}
		return node, nil
	})
}

// Decode is Read for a place with another format: decode returns what text, which is all that it depends on,
// says, or what is wrong with it.
func (s Slot) Decode(text []byte, decode func() (cluster.Node, []discovery.Problem)) Slot {
	sum := sha256.Sum256(text)
	if sum == s.sum {
		return s
	}
	node, problems := decode()
	if len(problems) > 0 {
		return Slot{sum: sum, good: s.good, problems: problems}
	}
	return Slot{sum: sum, good: &node}
}

// Refuse returns the slot after the place could not be read because of the problem.
func (s Slot) Refuse(p discovery.Problem) Slot {
	return Slot{good: s.good, problems: []discovery.Problem{p}}
}

// Node returns the last good record, not to be changed; nil when there was none.
func (s Slot) Node() *cluster.Node { return s.good }

// Says returns the record that the place says now, not to be changed; nil when it says none.
func (s Slot) Says() *cluster.Node {
	if len(s.problems) > 0 {
		return nil
	}
	return s.good
}

// Problems returns what is wrong with what the place says now.
func (s Slot) Problems() []discovery.Problem {
	list := slices.Clone(s.problems)
	if len(list) > 0 && s.good != nil {
		list[0].Message += fmt.Sprintf(" (the record issued %s is kept)", s.good.Issued.Format(time.RFC3339))
	}
	return list
}

// Servers is what the place of the list of API servers has said so far. Its rules are those of a Slot.
type Servers struct {
	sum      [sha256.Size]byte
	good     []netip.AddrPort
	problems []discovery.Problem
}

// Read returns the list after its place said text.
func (s Servers) Read(where string, text []byte) Servers {
	sum := sha256.Sum256(text)
	if sum == s.sum {
		return s
	}
	list, err := UnmarshalAPIServers(where, text)
	if err != nil {
		return Servers{sum: sum, good: s.good, problems: problemsOf(err)}
	}
	return Servers{sum: sum, good: list}
}

// Refuse returns the list after its place could not be read because of the problem.
func (s Servers) Refuse(p discovery.Problem) Servers {
	return Servers{good: s.good, problems: []discovery.Problem{p}}
}

// List returns the API servers, in order.
func (s Servers) List() []netip.AddrPort { return s.good }

// Same reports whether two nodes have the same record.
func Same(a, b cluster.Node) bool { return bytes.Equal(Marshal(a), Marshal(b)) }

// SameButOlder reports whether current, which is there already, says what node says, no later.
func SameButOlder(current, node cluster.Node) bool {
	older := !current.Issued.After(node.Issued)
	current.Issued = node.Issued
	return older && Same(current, node)
}

// problemsOf turns the error of Unmarshal into what a source emits.
func problemsOf(err error) []discovery.Problem {
	var problems []discovery.Problem
	for _, p := range err.(yamldoc.Problems) {
		remedy := p.Remedy
		if remedy == "" {
			remedy = "correct it, or remove it: its machine writes it again"
		}
		p.Remedy = ""
		problems = append(problems, discovery.Problem{Where: p.Where, Message: p.Text(), Remedy: remedy})
	}
	return problems
}
