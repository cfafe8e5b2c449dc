package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"warren/internal/discovery/dir"
	"warren/internal/discovery/record"
	"warren/internal/lab"
	"warren/internal/lab/netns"
	"warren/internal/lab/proof"
	"warren/internal/lab/wire"
)

// How long a lost node may be away: until the peers are sure that it is silent, some 15 s, and then little.
const lostTime = time.Minute

// TestLostDisk: a node whose disk is lost has another key, and what tells the others of it and it of the others is an API
// server on a peer, which expects the old key. Records travel over connections to that server and by no other way.
func TestLostDisk(t *testing.T) {
	for _, mode := range []string{"strict", "permissive"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c := up(t, "lostdisk-"+mode, "--nodes", "2", "--pods", "1", "--mode", mode)
			n1, n2 := c.node("n1"), c.node("n2")
			server := netip.AddrPortFrom(n1.Addresses[0], apiPort)
			records := filepath.Dir(c.open().RecordPath("n1"))
			list := filepath.Join(records, dir.APIServerFile)
			write(t, list, record.MarshalAPIServers([]netip.AddrPort{netip.AddrPortFrom(server.Addr(), otherPort)}))
			ownFolder(t, c, "n2", "n1")
			own := filepath.Join(lab.BaseDir, c.name, "n2", "nodes")
			write(t, filepath.Join(own, dir.APIServerFile), record.MarshalAPIServers([]netip.AddrPort{server}))
			serveRecords(t, n1.Namespace, server, records)
			exchanges := func() error { return exchangeRecords(n2.Namespace, server, "n2", own) }
			eventually(t, lostTime, "n2 exchanges records, encrypted", func() bool { return len(c.peers("n2")) == 1 && exchanges() == nil })
			before := keyOf(c, "n1", "n2")

			loseDisk(t, c, "n2", own)
			startAgent(t, c, "n2", "--dir-path", own)
			eventually(t, lostTime, "n1 hears nothing of n2", func() bool { return stateOf(c, "n1", "n2") == "stale" })
			for range 3 { // another port is the API server's
				if err := exchanges(); err == nil {
					t.Error("n2 reaches a port that is no API server's")
				}
			}
			capture := watchWire(t, c)
			write(t, list, record.MarshalAPIServers([]netip.AddrPort{server}))
			took := eventually(t, lostTime, "n2 is back with its new key", func() bool {
				now := keyOf(c, "n1", "n2")
				return exchanges() == nil && now != "" && now != before && keyOf(c, "n2", "n1") != ""
			})
			t.Logf("back %v after it was let in", took)
			onlyBetween(t, capture, server, n2.Addresses[0])
			closed := c.reason("n1", "bootstrap")
			if closed == 0 {
				t.Error("nothing took the exception")
			}
			if err := exchanges(); err != nil || c.reason("n1", "bootstrap") != closed {
				t.Errorf("afterwards %d packets took the exception, want %d: %v", c.reason("n1", "bootstrap"), closed, err)
			}
			c.mustVerify(2 * 4 * 2 * 3)
		})
	}
}

// TestLostServer: the machine of the only API server has another key. The others stay encrypted and do not reach it, until
// somebody sets them to observe mode.
func TestLostServer(t *testing.T) {
	t.Parallel()
	c := up(t, "lostserver", "--nodes", "2", "--pods", "1", "--mode", "strict")
	n1, n2 := c.node("n1"), c.node("n2")
	server := netip.AddrPortFrom(n1.Addresses[0], apiPort)
	records := filepath.Dir(c.open().RecordPath("n1"))
	list := record.MarshalAPIServers([]netip.AddrPort{server})
	write(t, filepath.Join(records, dir.APIServerFile), list)
	ownFolder(t, c, "n2", "n1")
	own := filepath.Join(lab.BaseDir, c.name, "n2", "nodes")
	write(t, filepath.Join(own, dir.APIServerFile), list)
	serveRecords(t, n1.Namespace, server, records)
	exchanges := func() error { return exchangeRecords(n2.Namespace, server, "n2", own) }
	eventually(t, lostTime, "n2 exchanges records, encrypted", func() bool { return keyOf(c, "n2", "n1") != "" && exchanges() == nil })
	before := keyOf(c, "n2", "n1")

	c.must("agent", "kill", "n1")
	c.mustExec("n1", warren, "cleanup", "--purge", "--config", c.open().ConfigPath("n1"))
	startAgent(t, c, "n1")
	eventually(t, lostTime, "n2 hears nothing of n1", func() bool { return stateOf(c, "n2", "n1") == "stale" })
	for range 3 {
		if err := exchanges(); err == nil {
			t.Error("n2 goes to the API server in clear by itself")
		}
	}
	c.mustExec("n2", warren, "mode", "set", "observe")
	eventually(t, lostTime, "n2 knows the new key", func() bool {
		_ = exchanges() // n1 refuses it again when n2 has answered
		return peerOf(t, c, "n2", "n1").PublicKey != before && stateOf(c, "n2", "n1") == "confirmed"
	})
	c.mustExec("n2", warren, "mode", "reset")
	eventually(t, lostTime, "both encrypt", func() bool { return keyOf(c, "n2", "n1") != "" && keyOf(c, "n1", "n2") != "" && exchanges() == nil })
	if scrape := c.mustExec("n2", "curl", "-s", "http://127.0.0.1:9880/metrics"); !strings.Contains(scrape, "\nwarren_device_recreations_total 0\n") {
		t.Error("the device was made anew for the sake of a peer that is gone")
	}
	c.mustVerify(2 * 4 * 2 * 3)
}

// loseDisk makes a node forget all that it knew, as if its machine had been put up anew.
func loseDisk(t *testing.T, c *testLab, node, own string) {
	t.Helper()
	c.must("agent", "kill", node)
	c.mustExec(node, warren, "cleanup", "--purge", "--config", c.open().ConfigPath(node), "--dir-path", own)
	for _, other := range c.open().Topology.Others(node) {
		remove(t, filepath.Join(own, other.Name+".yaml"))
	}
}

// keyOf returns the key of a peer that a node encrypts to and that answers, "" if it does not.
func keyOf(c *testLab, node, peer string) string {
	for _, p := range c.status(node).Peers {
		if p.Node == peer && p.Encrypting && p.State == "confirmed" {
			return p.PublicKey
		}
	}
	return ""
}

func stateOf(c *testLab, node, peer string) string {
	for _, p := range c.status(node).Peers {
		if p.Node == peer {
			return p.State
		}
	}
	return ""
}

// serveRecords keeps records for those that connect: each sends its own, which is put into the folder, and gets all.
func serveRecords(t *testing.T, namespace string, at netip.AddrPort, folder string) {
	t.Helper()
	acceptEach(t, namespace, at, func(connection net.Conn) {
		var sent map[string][]byte
		_ = connection.SetDeadline(time.Now().Add(5 * time.Second))
		if json.NewDecoder(connection).Decode(&sent) != nil {
			return
		}
		for name, text := range sent {
			store(folder, name, text)
		}
		_ = json.NewEncoder(connection).Encode(recordsIn(folder))
	})
}

// exchangeRecords is the other end.
func exchangeRecords(namespace string, at netip.AddrPort, node, folder string) error {
	var connection net.Conn
	err := netns.Do(namespace, func() (err error) {
		connection, err = net.DialTimeout("tcp", at.String(), 2*time.Second)
		return err
	})
	if err != nil {
		return err
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(2 * time.Second))
	own := recordsIn(folder)
	for name := range own {
		if name != node+".yaml" {
			delete(own, name)
		}
	}
	if err := json.NewEncoder(connection).Encode(own); err != nil {
		return err
	}
	var all map[string][]byte
	if err := json.NewDecoder(connection).Decode(&all); err != nil {
		return err
	}
	delete(all, node+".yaml")
	for name, text := range all {
		store(folder, name, text)
	}
	return nil
}

// recordsIn returns the records in a folder by their file names.
func recordsIn(folder string) map[string][]byte {
	records := map[string][]byte{}
	paths, _ := filepath.Glob(filepath.Join(folder, "n*.yaml"))
	for _, path := range paths {
		if text, err := os.ReadFile(path); err == nil {
			records[filepath.Base(path)] = text
		}
	}
	return records
}

// store writes a record if it is another one.
func store(folder, name string, text []byte) {
	path := filepath.Join(folder, filepath.Base(name))
	if old, err := os.ReadFile(path); err == nil && slices.Equal(old, text) {
		return
	}
	temporary := filepath.Join(folder, "."+filepath.Base(name))
	if os.WriteFile(temporary, text, 0o644) == nil {
		_ = os.Rename(temporary, path)
	}
}

// watchWire captures what enters the lab's switches.
func watchWire(t *testing.T, c *testLab) *wire.Capture {
	t.Helper()
	topology := c.open().Topology
	capture, err := wire.Listen(topology.Wire, topology.Bridges(), wire.Options{Cluster: proof.ClusterOf(topology)})
	if err != nil {
		t.Fatal(err)
	}
	return capture
}

// onlyBetween expects frames in clear, and none that is not between a server and an address.
func onlyBetween(t *testing.T, capture *wire.Capture, server netip.AddrPort, client netip.Addr) {
	t.Helper()
	frames, err := capture.Close()
	if err != nil {
		t.Fatal(err)
	}
	seen, others := 0, []string{}
	for _, frame := range frames {
		flow := frame.Flow
		switch {
		case frame.Kind != wire.Clear:
		case flow.Source == server && flow.Destination.Addr() == client, flow.Destination == server && flow.Source.Addr() == client:
			seen++
		default:
			others = append(others, fmt.Sprintf("%+v", flow))
		}
	}
	if seen == 0 || len(others) > 0 {
		t.Errorf("%d frames in clear to the server and from it, and others: %s", seen, strings.Join(others, ", "))
	}
}
