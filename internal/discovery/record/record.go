package record

import (
	"bytes"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"time"

	"warren/internal/cluster"
	"warren/internal/yamldoc"
)

// Version is the version of the record format that Marshal writes, and the only one Unmarshal reads.
const Version = 1

// MaxSize is the size in bytes beyond which a record is refused unread.
const MaxSize = yamldoc.MaxSize

// format is that of a record. Every key must be there, and the last line must end: whatever is left of
// a record that was cut off while being written is therefore not a record.
type format struct {
	Version      uint32         `yaml:"version"`
	Name         string         `yaml:"name"`
	Cluster      string         `yaml:"cluster"`
	Addresses    []netip.Addr   `yaml:"addresses"`
	Prefixes     []netip.Prefix `yaml:"prefixes"`
	Keys         []recordKey    `yaml:"keys"`
	Issued       time.Time      `yaml:"issued"`
	Capabilities []string       `yaml:"capabilities"`
	Software     string         `yaml:"software"`
}

type recordKey struct {
	Public cluster.PublicKey `yaml:"public"`
	Epoch  uint32            `yaml:"epoch"`
	Port   uint16            `yaml:"port"`
}

// Marshal writes a node as a record of the current version, always the same bytes for the same node:
// keys by epoch, the time in whole seconds of UTC. It does not validate.
func Marshal(node cluster.Node) []byte {
	keys := slices.Clone(node.Keys)
	slices.SortStableFunc(keys, byEpoch)
	var out bytes.Buffer
	line := func(key string, value any) { fmt.Fprintf(&out, "%s: %s\n", key, yamldoc.Format(value)) }
	line("version", Version)
	line("name", node.ID.Name)
	line("cluster", node.ID.Cluster)
	line("addresses", node.Addresses)
	line("prefixes", node.Prefixes)
	out.WriteString("keys:\n")
	for _, key := range keys {
		line("  - public", key.Public)
		line("    epoch", key.Epoch)
		line("    port", key.Port)
	}
	line("issued", node.Issued.UTC().Truncate(time.Second))
	line("capabilities", node.Capabilities)
	line("software", node.Version)
	return out.Bytes()
}

// Unmarshal reads the record in a place that belongs to the node of that name; where is how the place is
// called in problems. The error is yamldoc.Problems: every problem at once, with place, line, key and remedy.
func Unmarshal(where, name string, data []byte) (cluster.Node, error) {
	doc, err := yamldoc.Parse(where, data)
	if err != nil {
		return cluster.Node{}, err
	}
	if err := checkVersion(doc).Err(); err != nil {
		return cluster.Node{}, err // what else is wrong by our version may be right by its own
	}
	if err := checkEnd(where, data).Err(); err != nil {
		return cluster.Node{}, err // what else is wrong may only be missing
	}
	var r format
	if err := doc.DecodeAll(&r).Err(); err != nil {
		return cluster.Node{}, err
	}
	node := r.node()
	problems := slices.Concat(Check(node), checkName(name, node))
	for i, p := range problems {
		problems[i].Where = doc.Where(p.Key)
	}
	return node, problems.Err()
}

func (r format) node() cluster.Node {
	node := cluster.Node{
		ID:           cluster.NodeID{Cluster: r.Cluster, Name: r.Name},
		Addresses:    r.Addresses,
		Prefixes:     r.Prefixes,
		Issued:       r.Issued.UTC().Truncate(time.Second),
		Capabilities: r.Capabilities,
		Version:      r.Software,
	}
	for _, key := range r.Keys {
		node.Keys = append(node.Keys, cluster.Key(key))
	}
	slices.SortStableFunc(node.Keys, byEpoch)
	return node
}

func byEpoch(a, b cluster.Key) int { return int(int64(a.Epoch) - int64(b.Epoch)) }

func checkVersion(doc *yamldoc.Document) yamldoc.Problems {
	version, ok := doc.Scalar("version")
	p := yamldoc.Problem{Where: doc.Where("version"), Key: "version"}
	switch {
	case !ok:
		p.Message, p.Remedy = "missing", "the file may be half-written; a record of this Warren has version: 1"
	case version == fmt.Sprint(Version):
		return nil
	case !number.MatchString(version):
		p.Message, p.Remedy = fmt.Sprintf("%.70q is not a version", version), fmt.Sprintf("write %d", Version)
	default:
		p.Message = fmt.Sprintf("%.20s is not understood here, only %d", version, Version)
		p.Remedy = "upgrade warren on this node"
	}
	return yamldoc.Problems{p}
}

// checkEnd finds records cut off in their last line, where a value may be short and still a value
// (port 518 of 51880). Those cut off between lines lack a key.
func checkEnd(where string, data []byte) yamldoc.Problems {
	if bytes.HasSuffix(data, []byte("\n")) {
		return nil
	}
	return yamldoc.Problems{{
		Where:   fmt.Sprintf("%s:%d", where, 1+bytes.Count(data, []byte("\n"))),
		Message: "the last line has no end",
		Remedy:  "the file may be half-written; end it with a new line if it is whole",
	}}
}

var (
	number     = regexp.MustCompile(`^[1-9][0-9]*$`)
	capability = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	software   = regexp.MustCompile(`^[!-~]{0,128}$`)
)

// Check holds a node to what every record must be, whatever its format: valid, and without what the vocabulary
// leaves open and a record must not have: two keys that are one, and text that would end up on somebody's
// terminal. The keys of the problems are those of the format.
func Check(node cluster.Node) yamldoc.Problems {
	problems := yamldoc.ExplainAll(node.Validate())
	say := func(key, message, remedy string) {
		problems = append(problems, yamldoc.Problem{Key: key, Message: message, Remedy: remedy})
	}
	first := map[cluster.PublicKey]uint32{}
	for i, key := range node.Keys {
		if epoch, dup := first[key.Public]; dup {
			say(fmt.Sprintf("keys[%d].public", i), fmt.Sprintf("epochs %d and %d have the same key", epoch, key.Epoch), "remove one")
		}
		first[key.Public] = key.Epoch
	}
	if year := node.Issued.Year(); year < 1 || year > 9999 {
		say("issued", "outside the years 1 to 9999", "write the time at which the record was made")
	}
	for i, word := range node.Capabilities {
		if !capability.MatchString(word) {
			say(fmt.Sprintf("capabilities[%d]", i), fmt.Sprintf("%.70q is not a short word", word), "use a-z, 0-9 and inside '-'")
		}
	}
	if !software.MatchString(node.Version) {
		say("software", fmt.Sprintf("%.140q is not a version", node.Version), `use printable ASCII without spaces, or ""`)
	}
	return problems
}

// checkName makes the place the claim to a node: of all records that say they are n1's, the one in n1's place is.
func checkName(name string, node cluster.Node) yamldoc.Problems {
	if name == node.ID.Name || cluster.ValidName(node.ID.Name) != nil {
		return nil
	}
	return yamldoc.Problems{{
		Key:     "name",
		Message: fmt.Sprintf("this is the record of %s in the place of %.70s", node.ID, name),
		Remedy:  fmt.Sprintf("remove it, or put it in the place of %s if there is none", node.ID.Name),
	}}
}
