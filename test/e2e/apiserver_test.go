package e2e

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"warren/internal/api"
	"warren/internal/discovery/dir"
	"warren/internal/discovery/record"
	"warren/internal/lab"
)

// TestNodeThatRunsTheAPIServer is the case that the IPCache exists for (cilium 19318, 24502): an address
// is a node and the API server. In whichever order n1 learns of the two, and with a restart of its agent
// at any point between, what it sends to n2 is encrypted and delivered.
func TestNodeThatRunsTheAPIServer(t *testing.T) {
	c := up(t, "apiserver", "--nodes", "2", "--pods", "1")
	n2 := c.node("n2").Addresses[0]
	records := filepath.Join(lab.BaseDir, c.name, "nodes")
	file, list := filepath.Join(records, "n2.yaml"), filepath.Join(records, dir.APIServerFile)
	text := ownFolder(t, c, "n2", "n1") // or it would write its record again
	news := map[string]func(){
		"node record": func() { write(t, file, text) },
		"API server":  func() { write(t, list, record.MarshalAPIServers([]netip.AddrPort{netip.AddrPortFrom(n2, 6443)})) },
		"restart": func() {
			c.must("agent", "kill", "n1")
			c.run("agent", "start", "n1") // it may wait in vain for the peer that has no record
		},
	}
	for _, order := range permutations([]string{"node record", "API server", "restart"}) {
		t.Run(strings.Join(order, ", "), func(t *testing.T) {
			remove(t, file, list)
			eventually(t, 10*time.Second, "n1 forgets both", func() bool {
				_, known := c.lookup("n1", n2)
				return !known
			})
			for _, what := range order {
				news[what]()
			}
			var entry api.EntryDetail
			eventually(t, 10*time.Second, "n1 knows n2 as node and API server, and n2 has answered", func() bool {
				entry, _ = c.lookup("n1", n2)
				return entry.Identity == 7 && entry.Endpoint == n2.String() && entry.Agree && slices.Contains(c.peers("n1"), "n2")
			})
			labels := []string{"reserved:kube-apiserver", "reserved:remote-node"}
			if !slices.Equal(entry.Labels, labels) || entry.Key != 1 || len(entry.Facts) != 2 {
				t.Errorf("labels %v, key %d, %d facts; want %v, 1, 2", entry.Labels, entry.Key, len(entry.Facts), labels)
			}
			c.mustVerify(3, "--class", "host-host", "--from", "n1", "--to", "n2", "--family", "ipv4")
		})
	}
}

// ownFolder gives a node's agent a folder of its own, with the records of others, and returns its record.
func ownFolder(t *testing.T, c *testLab, node string, others ...string) (record []byte) {
	t.Helper()
	l := c.open()
	own := filepath.Join(lab.BaseDir, c.name, node, "nodes")
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(others, node) {
		text, err := os.ReadFile(l.RecordPath(name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(own, name+".yaml"), text)
		record = text
	}
	c.must("agent", "stop", node)
	startAgent(t, c, node, "--dir-path", own)
	return record
}

// lookup is `warren ipcache get` on a node, without a process for the way there; false: it says that there is nothing.
func (c *testLab) lookup(node string, addr netip.Addr) (entry api.EntryDetail, known bool) {
	place, err := c.open().Place(node)
	if err != nil {
		c.t.Fatal(err)
	}
	command := exec.CommandContext(c.t.Context(), warren, "ipcache", "get", addr.String(), "-o", "json")
	command.Env = place.Env
	output, err := command.Output()
	if err == nil {
		err = json.Unmarshal(output, &entry)
	}
	var exit *exec.ExitError
	if err != nil {
		return api.EntryDetail{}, !errors.As(err, &exit) || !strings.Contains(string(exit.Stderr), "not found")
	}
	return entry, true
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	temporary := filepath.Join(filepath.Dir(path), ".tmp")
	if err := os.WriteFile(temporary, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, path); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
}

// permutations returns every order of the words.
func permutations(words []string) [][]string {
	if len(words) == 0 {
		return [][]string{nil}
	}
	var all [][]string
	for i, first := range words {
		rest := slices.Delete(slices.Clone(words), i, i+1)
		for _, order := range permutations(rest) {
			all = append(all, append([]string{first}, order...))
		}
	}
	return all
}
