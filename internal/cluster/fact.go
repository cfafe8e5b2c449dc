package cluster

import (
	"fmt"
	"net/netip"
)

// Source is where a fact comes from. The smaller the value, the stronger the source.
type Source uint8

// The sources by rank, strongest first (docs/ipcache.md has the reasons). The zero value is not a source.
const (
	SourceKubeAPIServer  Source = iota + 1 // endpoints of the API server
	SourceLocal                            // this node, about itself
	SourceKVStore                          // etcd
	SourceCustomResource                   // WarrenNode
	SourceKubernetes                       // other Kubernetes objects
	SourceDirectory                        // records in the watched folder
	SourceFile                             // facts in the configuration file
	SourceGenerated                        // derived by the agent
	SourceRestored                         // the snapshot of an earlier run
)

var sourceNames = [...]string{
	SourceKubeAPIServer:  "kube-apiserver",
	SourceLocal:          "local",
	SourceKVStore:        "kvstore",
	SourceCustomResource: "custom-resource",
	SourceKubernetes:     "kubernetes",
	SourceDirectory:      "directory",
	SourceFile:           "file",
	SourceGenerated:      "generated",
	SourceRestored:       "restored",
}

// String returns the name that the documentation and the JSON output use.
func (s Source) String() string {
	if int(s) < len(sourceNames) && sourceNames[s] != "" {
		return sourceNames[s]
	}
	return fmt.Sprintf("source(%d)", uint8(s))
}

// ParseSource is the inverse of String.
func ParseSource(text string) (Source, error) {
	for s, name := range sourceNames {
		if name != "" && name == text {
			return Source(s), nil
		}
	}
	return 0, fmt.Errorf("source %q: one of %v", text, sourceNames[1:])
}

// MarshalText implements encoding.TextMarshaler.
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Source) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSource(string(text))
	return err
}

// KeyID is the number of an encryption key as the datapath sees it: 1…255. 0 says "do not encrypt".
type KeyID uint8

// NoEncryption is the KeyID of an explicit "do not encrypt".
const NoEncryption KeyID = 0

// KeyIDOf returns the number of the key with this epoch (epochs count from 1).
func KeyIDOf(epoch uint32) KeyID { return KeyID(1 + (epoch-1)%255) }

// Pair is how an address is reached: the underlay address of the node it lives on, and the key
// that node decrypts with. It is one value: never half of one fact and half of another.
type Pair struct {
	Endpoint netip.Addr
	Key      KeyID
}

// Flags of an address.
type Flags uint8

// The flags.
const (
	// FlagNode: the address belongs to a machine itself, not to something behind it.
	FlagNode Flags = 1 << iota
	// FlagLocal: the address belongs to this node or lives behind it.
	FlagLocal
)

// Info is what a fact says. Every field may be absent: a fact without opinion on a field leaves
// it to weaker facts.
type Info struct {
	// Labels such as "reserved:remote-node"; the union over all facts makes the identity.
	Labels []string
	// Pair counts only when HasPair is set; a present pair with key 0 says "do not encrypt".
	Pair    Pair
	HasPair bool
	// Owner is the machine the address belongs to; the zero value has no opinion.
	Owner NodeID
	// Flags are united over all facts.
	Flags Flags
}

// Fact is what one resource of one source says about one prefix.
type Fact struct {
	// Prefix is masked and unmapped (CanonicalPrefix).
	Prefix netip.Prefix
	Source Source
	// Resource names the object that says so, such as "node/default/n2". A resource has one
	// slot per prefix and writes only its own.
	Resource string
	// Issued orders facts of equal rank, larger first: the Unix second at which the
	// resource says it was written, 0 when it does not say.
	Issued int64
	Info   Info
}
