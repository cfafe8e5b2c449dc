package snapshot

import (
	"bytes"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warren/internal/cluster"
)

func example() Snapshot {
	return Snapshot{
		Peers: []cluster.Node{{
			ID:        cluster.NodeID{Cluster: "default", Name: "n2"},
			Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")},
			Prefixes:  []netip.Prefix{netip.MustParsePrefix("10.42.2.0/24")},
			Keys:      []cluster.Key{{Public: cluster.PublicKey{2}, Epoch: 1, Port: cluster.DefaultPort}},
			Issued:    time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
			Version:   "v1",
		}},
		APIServers: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.2:6443")},
	}
}

var byValue = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
}

func TestLoadReturnsWhatWasSaved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot.json")
	if _, err := Load(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("none: %v", err)
	}
	for _, want := range []Snapshot{example(), {}} {
		if err := Save(path, want); err != nil {
			t.Fatal(err)
		}
		got, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, byValue); diff != "" {
			t.Errorf("(-saved +loaded):\n%s", diff)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// TestDamageIsFound flips every byte and cuts at every length: a damaged snapshot is never believed.
func TestDamageIsFound(t *testing.T) {
	whole, err := encode(example())
	if err != nil {
		t.Fatal(err)
	}
	believed := func(data []byte) bool {
		s, err := decode(data)
		return err == nil && !cmp.Equal(s, example(), byValue)
	}
	for i := range whole {
		for _, flip := range []byte{1, 0x20, 0x80} {
			damaged := bytes.Clone(whole)
			damaged[i] ^= flip
			if believed(damaged) {
				t.Errorf("byte %d flipped by %#x: believed", i, flip)
			}
		}
		if _, err := decode(whole[:i]); err == nil {
			t.Errorf("cut after %d bytes: believed", i)
		}
	}
}

func TestDamagedFilesAreSetAside(t *testing.T) {
	for name, data := range map[string]string{
		"empty":           "",
		"another version": `{"version":2,"sha256":"","content":{}}`,
		"wrong checksum":  `{"version":1,"sha256":"00","content":{"peers":[]}}`,
		"not JSON":        "peers: []",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "snapshot.json")
			if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Load(path); !errors.Is(err, ErrCorrupt) {
				t.Errorf("error %v", err)
			}
			kept, err := os.ReadFile(path + ".corrupt")
			if err != nil || string(kept) != data {
				t.Errorf("kept %q, %v", kept, err)
			}
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("still in its place: %v", err)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	whole, _ := encode(example())
	f.Add(whole)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := decode(data)
		if err != nil {
			return
		}
		for _, node := range s.Peers {
			if err := node.Validate(); err != nil {
				t.Errorf("accepted a bad record: %v", err)
			}
		}
	})
}
