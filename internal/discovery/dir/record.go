package dir

import (
	"bytes"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"warren/internal/cluster"
	"warren/internal/discovery"
	"warren/internal/yamldoc"
)

// Version is the version of the record format that Marshal writes, and the only one Unmarshal reads.
const Version = 1

// MaxSize is the size in bytes beyond which a record is refused unread.
const MaxSize = yamldoc.MaxSize

// suffix of record files.
const suffix = ".yaml"

// record is the file format. Every key must be there, and the last line must end: whatever is left of
// a record that was cut off while being written is therefore not a record.
type record struct {
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

// FileName returns the name of a machine's file in the folder.
func FileName(id cluster.NodeID) string { return id.Name + suffix }

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

// Unmarshal reads the record in a file; the name of the file must be that of the record's node. The
// error is yamldoc.Problems: every problem at once, with file, line, key and remedy.
func Unmarshal(file string, data []byte) (cluster.Node, error) {
	doc, err := yamldoc.Parse(file, data)
	if err != nil {
		return cluster.Node{}, err
	}
	if err := checkVersion(doc).Err(); err != nil {
		return cluster.Node{}, err // what else is wrong by our version may be right by its own
	}
	if err := checkEnd(file, data).Err(); err != nil {
		return cluster.Node{}, err // what else is wrong may only be missing
	}
	var r record
	if err := doc.DecodeAll(&r).Err(); err != nil {
		return cluster.Node{}, err
	}
	node := r.node()
	problems := slices.Concat(checkRecord(node), checkName(file, node))
	for i, p := range problems {
		problems[i].Where = doc.Where(p.Key)
	}
	return node, problems.Err()
}

func (r record) node() cluster.Node {
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
func checkEnd(file string, data []byte) yamldoc.Problems {
	if bytes.HasSuffix(data, []byte("\n")) {
		return nil
	}
	return yamldoc.Problems{{
		Where:   fmt.Sprintf("%s:%d", file, 1+bytes.Count(data, []byte("\n"))),
		Message: "the last line has no end",
		Remedy:  "the file may be half-written; end it with a new line if it is whole",
	}}
}

var number = regexp.MustCompile(`^[1-9][0-9]*$`)

// checkRecord holds a node to what every record must be.
func checkRecord(node cluster.Node) yamldoc.Problems {
	problems := yamldoc.ExplainAll(discovery.CheckRecord(node))
	for i, p := range problems {
		if p.Key == "version" { // of the software; the file calls its format's version so
			problems[i].Key = "software"
		}
	}
	return problems
}

// checkName makes the file name the claim to a node: of all files that say they are n1's, n1.yaml is.
func checkName(file string, node cluster.Node) yamldoc.Problems {
	base := filepath.Base(file)
	if base == FileName(node.ID) || cluster.ValidName(node.ID.Name) != nil {
		return nil
	}
	return yamldoc.Problems{{
		Key:     "name",
		Message: fmt.Sprintf("this is the record of %s in a file called %s", node.ID, base),
		Remedy:  fmt.Sprintf("remove it, or name it %s if there is none", FileName(node.ID)),
	}}
}

// problemsOf turns the error of Unmarshal into what the source emits.
func problemsOf(err error) []discovery.Problem {
	var problems []discovery.Problem
	for _, p := range err.(yamldoc.Problems) {
		remedy := p.Remedy
		if remedy == "" {
			remedy = "correct it, or remove the file: its machine writes it again"
		}
		p.Remedy = ""
		problems = append(problems, discovery.Problem{Where: p.Where, Message: p.Text(), Remedy: remedy})
	}
	return problems
}

// isRecord tells record files from everything else in the folder: temporary files start with a dot,
// and apiserver.yaml lists the API servers.
func isRecord(name string) bool {
	return strings.HasSuffix(name, suffix) && !strings.HasPrefix(name, ".") && name != APIServerFile
}
