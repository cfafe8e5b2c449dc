package e2e

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"warren/internal/cluster"
	"warren/internal/discovery/dir"
	"warren/internal/discovery/record"
	"warren/internal/lab"
)

// The size of the largest clusters: every node with two addresses, two pod CIDRs and fifty addresses of
// single pods.
const (
	scaleNodes = 5000
	scalePods  = 50
)

// BenchmarkAgentAtScale is one agent with its userspace tunnel among 5,000 nodes and 250,000 single pods:
// from its start to ready on an empty kernel, the same after a restart, and one changed record.
func BenchmarkAgentAtScale(b *testing.B) {
	if testing.Short() {
		b.Skip("short")
	}
	c := up(b, "scale", "--nodes", "1", "--pods", "1")
	c.must("agent", "stop", "n1")
	records := filepath.Join(lab.BaseDir, c.name, "nodes")
	for i := range scaleNodes {
		putRecord(b, records, scaleNode(i))
	}
	flags := []string{"--ipcache-max-addresses", "400000", "--ipcache-max-prefixes", "65536"}
	for b.Loop() {
		start := time.Now()
		stop := startAgent(b, c, "n1", flags...)
		waitReady(b, c)
		b.ReportMetric(time.Since(start).Seconds(), "s-to-ready")
		pid := c.status("n1").PID
		b.ReportMetric(cpuTime(b, pid).Seconds(), "cpu-s-to-ready")
		b.ReportMetric(float64(residentMemory(b, pid)>>20), "MiB-agent")

		changed := scaleNode(7)
		changed.Prefixes = append(changed.Prefixes, netip.MustParsePrefix("198.51.100.7/32"))
		changed.Issued = changed.Issued.Add(time.Second)
		start = time.Now()
		putRecord(b, records, changed)
		eventually(b, time.Minute, "the changed record is in the kernel", func() bool {
			entry, known := c.lookup("n1", netip.MustParseAddr("198.51.100.7"))
			return known && entry.Agree && entry.Owner == changed.ID.String()
		})
		b.ReportMetric(time.Since(start).Seconds(), "s-one-change")
		stop()

		start = time.Now()
		stop = startAgent(b, c, "n1", flags...)
		waitReady(b, c)
		b.ReportMetric(time.Since(start).Seconds(), "s-restart")
		pid = c.status("n1").PID
		idle := cpu(b, pid)
		time.Sleep(30 * time.Second)
		b.ReportMetric(idle(), "%cpu-idle")
		b.ReportMetric(float64(residentMemory(b, pid)>>20), "MiB-restarted")
		stop()
	}
}

func waitReady(b *testing.B, c *testLab) {
	b.Helper()
	eventually(b, 3*time.Minute, "the agent is ready", func() bool {
		status := c.status("n1")
		return status.Ready && status.Entries > scaleNodes*scalePods
	})
}

// scaleNode returns the record of a node with addresses in 10.64.0.0/10 and fd64::/16, pod CIDRs in
// 10.128.0.0/9 and fd65::/16, and single pods in 172.16.0.0/12.
func scaleNode(i int) cluster.Node {
	private := [cluster.KeyLen]byte{1}
	binary.BigEndian.PutUint32(private[1:], uint32(i+1))
	node := cluster.Node{
		ID: cluster.NodeID{Cluster: cluster.DefaultCluster, Name: fmt.Sprintf("s%d", i)},
		Addresses: []netip.Addr{
			netip.AddrFrom4([4]byte{10, 64, byte(i >> 8), byte(i)}), netip.AddrFrom16([16]byte{0xfd, 0x64, 14: byte(i >> 8), 15: byte(i + 1)}),
		},
		Prefixes: []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 128 + byte(i>>8), byte(i), 0}), 24),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0x65, 4: byte(i >> 8), 5: byte(i)}), 64),
		},
		Keys:   []cluster.Key{{Public: cluster.PublicKey(private), Epoch: 1, Port: cluster.DefaultPort}},
		Issued: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	for pod := range scalePods {
		n := i*scalePods + pod
		node.Prefixes = append(node.Prefixes, cluster.HostPrefix(netip.AddrFrom4([4]byte{172, 16 + byte(n>>16), byte(n >> 8), byte(n)})))
	}
	return node
}

func putRecord(tb testing.TB, folder string, node cluster.Node) {
	tb.Helper()
	if err := os.WriteFile(filepath.Join(folder, ".new"), record.Marshal(node), 0o644); err != nil {
		tb.Fatal(err)
	}
	if err := os.Rename(filepath.Join(folder, ".new"), filepath.Join(folder, dir.FileName(node.ID))); err != nil {
		tb.Fatal(err)
	}
}
