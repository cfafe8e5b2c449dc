// Package recordtest has the nodes of tests that deal with records.
package recordtest

import (
	"bytes"
	"flag"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"warren/internal/cluster"
)

// SameNode compares nodes as their records do: no element or no list is the same.
var SameNode = cmp.Options{
	cmpopts.EquateEmpty(),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

var update = flag.Bool("update", false, "rewrite the golden files")

// Golden holds a text against a file.
func Golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got)\n%s", file, diff)
	}
}

// PublicKey returns a key that only the number decides.
func PublicKey(n byte) cluster.PublicKey {
	return cluster.PublicKey(bytes.Repeat([]byte{n}, cluster.KeyLen))
}

// Issued is when the records of the tests were written.
var Issued = time.Date(2026, 11, 30, 3, 14, 0, 0, time.UTC)

// Sample returns a whole node; n decides its addresses and key.
func Sample(name string, n byte) cluster.Node {
	return cluster.Node{
		ID:        cluster.NodeID{Cluster: "default", Name: name},
		Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, n}), netip.MustParseAddr("fd00::1")},
		Prefixes:  []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 42, n, 0}), 24)},
		Keys:      []cluster.Key{{Public: PublicKey(n), Epoch: 1, Port: 51880}},
		Issued:    Issued,
		Version:   "v0.1.0",
	}
}
