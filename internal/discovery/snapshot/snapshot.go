// Package snapshot keeps on disk what a node last knew of its cluster, so that after a reboot it reaches
// peers, an encrypted API server among them, before it has read anything.
//
//	last, err := snapshot.Load(path) // fs.ErrNotExist: there is none; ErrCorrupt: it was set aside
//	err = snapshot.Save(path, snapshot.Snapshot{Peers: peers, APIServers: servers})
//
// A snapshot is a memory: it has the weakest rank of all sources and goes when they are synced.
package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"warren/internal/cluster"
	"warren/internal/discovery/durable"
)

// Version is the version of the format that Save writes, and the only one that Load reads.
const Version = 1

// maxSize bounds what Load reads, in bytes: 5,000 records of 50 pod addresses each are 12 MiB.
const maxSize = 256 << 20

// ErrCorrupt: the file is not a snapshot, or was damaged. It is kept beside its place, with ".corrupt"
// after its name.
var ErrCorrupt = errors.New("the snapshot is damaged")

// Snapshot is what is remembered.
type Snapshot struct {
	// Peers are the admitted records.
	Peers []cluster.Node
	// APIServers are the addresses and ports at which the API server is reached.
	APIServers []netip.AddrPort
}

// file is the format: a checksum over the exact bytes of the content.
type file struct {
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"`
	Content json.RawMessage `json:"content"`
}

type content struct {
	Peers      []record         `json:"peers"`
	APIServers []netip.AddrPort `json:"api_servers"`
}

type record struct {
	Cluster      string         `json:"cluster"`
	Name         string         `json:"name"`
	Addresses    []netip.Addr   `json:"addresses"`
	Prefixes     []netip.Prefix `json:"prefixes"`
	Keys         []key          `json:"keys"`
	Issued       time.Time      `json:"issued"`
	Capabilities []string       `json:"capabilities"`
	Software     string         `json:"software"`
}

type key struct {
	Public cluster.PublicKey `json:"public"`
	Epoch  uint32            `json:"epoch"`
	Port   uint16            `json:"port"`
}

func recordOf(n cluster.Node) record {
	r := record{
		Cluster: n.ID.Cluster, Name: n.ID.Name, Addresses: n.Addresses, Prefixes: n.Prefixes,
		Issued: n.Issued.UTC(), Capabilities: n.Capabilities, Software: n.Version,
	}
	for _, k := range n.Keys {
		r.Keys = append(r.Keys, key(k))
	}
	return r
}

func (r record) node() cluster.Node {
	n := cluster.Node{
		ID: cluster.NodeID{Cluster: r.Cluster, Name: r.Name}, Addresses: r.Addresses, Prefixes: r.Prefixes,
		Issued: r.Issued, Capabilities: r.Capabilities, Version: r.Software,
	}
	for _, k := range r.Keys {
		n.Keys = append(n.Keys, cluster.Key(k))
	}
	return n
}

// Save writes the snapshot in one step: after a power cut the file is the old one or the new one.
func Save(path string, s Snapshot) error {
	data, err := encode(s)
	if err != nil {
		return fmt.Errorf("save the snapshot: %w", err)
	}
	if err := durable.Replace(path, data, 0o600); err != nil {
		return fmt.Errorf("save the snapshot: %w", err)
	}
	return nil
}

func encode(s Snapshot) ([]byte, error) {
	c := content{Peers: []record{}, APIServers: s.APIServers}
	for _, node := range s.Peers {
		c.Peers = append(c.Peers, recordOf(node))
	}
	body, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return json.Marshal(file{Version: Version, SHA256: checksum(body), Content: body})
}

// Load reads the snapshot. Errors: fs.ErrNotExist, ErrCorrupt.
func Load(path string) (Snapshot, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Snapshot{}, fmt.Errorf("load the snapshot: %w", err)
	}
	if info.Size() > maxSize {
		return Snapshot{}, setAside(path, fmt.Errorf("%d bytes are more than it can have", info.Size()))
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Snapshot{}, fmt.Errorf("load the snapshot: %w", err)
	}
	s, err := decode(data)
	if err != nil {
		return Snapshot{}, setAside(path, err)
	}
	return s, nil
}

func decode(data []byte) (Snapshot, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return Snapshot{}, err
	}
	if f.Version != Version {
		return Snapshot{}, fmt.Errorf("version %d, this warren reads %d", f.Version, Version)
	}
	if f.SHA256 != checksum(f.Content) {
		return Snapshot{}, errors.New("its checksum is wrong")
	}
	var c content
	if err := json.Unmarshal(f.Content, &c); err != nil {
		return Snapshot{}, err
	}
	s := Snapshot{APIServers: c.APIServers}
	for _, r := range c.Peers {
		node := r.node()
		if err := node.Validate(); err != nil {
			return Snapshot{}, fmt.Errorf("the record of %s: %w", node.ID, err)
		}
		s.Peers = append(s.Peers, node)
	}
	return s, nil
}

// setAside moves a damaged file out of the way, for people to look at.
func setAside(path string, why error) error {
	aside := path + ".corrupt"
	if err := os.Rename(path, aside); err != nil {
		return fmt.Errorf("%w: %w; it cannot be set aside: %w", ErrCorrupt, why, err)
	}
	return fmt.Errorf("%w: %w; it is kept as %s", ErrCorrupt, why, aside)
}

func checksum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
