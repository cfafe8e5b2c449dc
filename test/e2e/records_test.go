package e2e

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warren/internal/cluster"
	"warren/internal/discovery/record"
	"warren/internal/lab"
)

// TestBadRecords puts everything into the folder that does not belong there: each is named with its
// place and remedy, nothing else changes, and the problem goes with the file.
func TestBadRecords(t *testing.T) {
	c := up(t, "badrecords", "--pods", "1")
	records := filepath.Join(lab.BaseDir, c.name, "nodes")
	good, err := os.ReadFile(filepath.Join(records, "n2.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	own, err := cluster.ParsePublicKey(c.status("n1").PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	n2, err := record.Unmarshal("n2.yaml", "n2", good)
	if err != nil {
		t.Fatal(err)
	}
	stranger := func(name string, key cluster.PublicKey) []byte {
		return record.Marshal(cluster.Node{
			ID: cluster.NodeID{Cluster: cluster.DefaultCluster, Name: name}, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.9")},
			Keys: []cluster.Key{{Public: key, Epoch: 1, Port: cluster.DefaultPort}}, Issued: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
		})
	}
	for _, test := range []struct {
		name, file string
		data       []byte
		want       []string // parts of the problem
	}{
		{"a copy of a peer's key, older than the peer", "x1.yaml", stranger("x1", n2.Keys[0].Public), []string{"node default/x1", "already belongs to default/n2"}},
		{"this node's own key", "x2.yaml", stranger("x2", own), []string{"node default/x2", "this node's own key"}},
		{"the zero key", "x3.yaml", stranger("x3", cluster.PublicKey{}), []string{"x3.yaml:", "all-zero key"}},
		{"a half-written record", "x4.yaml", good[:len(good)/2], []string{"x4.yaml:", "half-written"}},
		{"an unknown version", "x5.yaml", bytes.Replace(good, []byte("version: 1"), []byte("version: 7"), 1), []string{"x5.yaml:1:10", "upgrade warren"}},
		{"a second record of one node", "x6.yaml", good, []string{"x6.yaml:", "n2"}},
		{"ten MiB", "x7.yaml", bytes.Repeat([]byte("# nothing\n"), 1<<20), []string{"x7.yaml", "more than"}},
		{"a peer's record becomes garbage", "n2.yaml", []byte("]["), []string{"n2.yaml:", "is kept"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.file == "n2.yaml" {
				c.must("agent", "stop", "n2") // it would write its record again before anybody looks
			}
			write(t, filepath.Join(records, test.file), test.data)
			eventually(t, 5*time.Second, "n1 names the problem", func() bool {
				found := problems(c, "n1")
				for _, part := range test.want {
					if !strings.Contains(found, part) {
						return false
					}
				}
				return true
			})
			if peers := c.peers("n1"); len(peers) != 2 {
				t.Errorf("n1 has the peers %v", peers)
			}
			if test.file == "n2.yaml" {
				c.must("agent", "start", "n2")
			} else {
				remove(t, filepath.Join(records, test.file))
			}
			eventually(t, 5*time.Second, "the problem goes with the file", func() bool { return problems(c, "n1") == "" })
		})
	}
	c.mustVerify(144)
}
