package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// DefaultCluster is the cluster name of a node that names none.
const DefaultCluster = "default"

// DefaultPort is the UDP port of Warren's WireGuard device.
const DefaultPort = 51880

// NodeID names a machine: cluster and node, since two clusters may both have a "node-1".
type NodeID struct {
	Cluster string
	Name    string
}

// String returns "cluster/name"; the zero value prints as "-".
func (id NodeID) String() string {
	if id == (NodeID{}) {
		return "-"
	}
	return id.Cluster + "/" + id.Name
}

// Compare orders node IDs by cluster, then name.
func (id NodeID) Compare(other NodeID) int {
	if c := compare(id.Cluster, other.Cluster); c != 0 {
		return c
	}
	return compare(id.Name, other.Name)
}

// MarshalText implements encoding.TextMarshaler.
func (id NodeID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// CapabilityLeaving in a record says that the node is about to leave: it sends in clear as soon as its
// peers accept that, and its record will go.
const CapabilityLeaving = "leaving"

// Key is one public key of a node.
type Key struct {
	Public PublicKey
	// Epoch counts the keys of the node from 1; a rotation publishes the next one.
	Epoch uint32
	// Port is the UDP port, on every address of the node, of the device with this key.
	Port uint16
}

// Node is what one machine says of itself: the record that discovery carries.
type Node struct {
	ID NodeID
	// Addresses are the machine's own addresses on its underlay devices. The first one of a
	// family is the tunnel endpoint for that family.
	Addresses []netip.Addr
	// Prefixes are what lives behind the machine: pod CIDRs, or addresses of single pods.
	Prefixes []netip.Prefix
	// Keys has at least one key; the one with the highest epoch comes last.
	Keys []Key
	// Issued is when the machine wrote the record, by its own clock. Of two live records that
	// claim one address the younger owns it.
	Issued time.Time
	// Capabilities are short words for what the machine's Warren can do beyond version 1.
	Capabilities []string
	// Version is the Warren that wrote the record, for people.
	Version string
}

// CurrentKey returns the key with the highest epoch; ok is false when there is none.
func (n Node) CurrentKey() (key Key, ok bool) {
	for _, k := range n.Keys {
		if !ok || k.Epoch > key.Epoch {
			key, ok = k, true
		}
	}
	return key, ok
}

// Leaving reports whether the node is about to leave.
func (n Node) Leaving() bool { return slices.Contains(n.Capabilities, CapabilityLeaving) }

// Validate reports every problem of the record at once. Each names the field and the remedy.
func (n Node) Validate() error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if err := ValidName(n.ID.Name); err != nil {
		problem("name: %w", err)
	}
	if err := ValidName(n.ID.Cluster); err != nil {
		problem("cluster: %w", err)
	}
	if len(n.Addresses) == 0 {
		problem("addresses: none; a node needs at least one underlay address")
	}
	seen := map[netip.Prefix]string{}
	for i, addr := range n.Addresses {
		where := fmt.Sprintf("addresses[%d]", i)
		if err := ValidUnicast(addr); err != nil {
			problem("%s: %w", where, err)
			continue
		}
		if first, dup := seen[HostPrefix(addr)]; dup {
			problem("%s: %s is already in %s", where, addr, first)
		}
		seen[HostPrefix(addr)] = where
	}
	for i, prefix := range n.Prefixes {
		where := fmt.Sprintf("prefixes[%d]", i)
		if err := ValidPrefix(prefix); err != nil {
			problem("%s: %w", where, err)
			continue
		}
		if first, dup := seen[prefix]; dup {
			problem("%s: %s is already in %s", where, prefix, first)
		}
		seen[prefix] = where
	}
	if len(n.Keys) == 0 {
		problem("keys: none; a node needs a public key (warren keys public prints it)")
	}
	epochs := map[uint32]bool{}
	for i, key := range n.Keys {
		if key.Public.IsZero() {
			problem("keys[%d].public: %w", i, ErrKeyZero)
		}
		if key.Epoch == 0 {
			problem("keys[%d].epoch: 0; epochs count from 1", i)
		}
		if epochs[key.Epoch] {
			problem("keys[%d].epoch: %d is used twice", i, key.Epoch)
		}
		epochs[key.Epoch] = true
		if key.Port == 0 {
			problem("keys[%d].port: 0; the default is %d", i, DefaultPort)
		}
	}
	return errors.Join(problems...)
}

// ValidName accepts what Kubernetes accepts as a node name (a DNS subdomain, RFC 1123): at most
// 253 characters of a–z, 0–9, '-' and '.', starting and ending with a letter or digit.
func ValidName(name string) error {
	if name == "" {
		return errors.New("empty")
	}
	if len(name) > 253 {
		return fmt.Errorf("%d characters, at most 253", len(name))
	}
	for i := range len(name) {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		inner := i > 0 && i < len(name)-1 && (c == '-' || c == '.')
		if !alnum && !inner {
			return fmt.Errorf("%q: only a-z, 0-9, and inside '-' and '.' (RFC 1123)", name)
		}
	}
	return nil
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
