package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warren/internal/lab"
	"warren/internal/lab/netns"
	"warren/internal/lab/proof"
)

// Ports of the firewall test: one that the firewall lets in on eth0, and one that it does not know.
const (
	openPort   = 8080
	closedPort = 9090
)

// firewall drops everything that is not named, and names only interfaces of before Warren. The answers
// to the node's own questions are let in by their source ports, without conntrack.
var firewall = fmt.Sprintf(`
table inet guard {
	chain input {
		type filter hook input priority 0; policy drop;
		iifname "lo" accept
		iifname "cni0" accept
		iifname "eth0" meta l4proto { icmp, ipv6-icmp } accept
		iifname "eth0" udp dport %[1]d accept
		iifname "eth0" meta l4proto { tcp, udp } th dport { %[2]d, %[3]d } accept
		iifname "eth0" meta l4proto { tcp, udp } th sport { %[2]d, %[3]d, %[4]d } accept
	}
}`, lab.Port, proof.EchoPort, openPort, closedPort)

// TestFirewall: rules that name eth0, and strict reverse-path filters, mean the same with and without
// Warren, and no setting of the kernel is touched.
func TestFirewall(t *testing.T) {
	t.Parallel()
	needTool(t, "nft")
	c := up(t, "firewall", "--nodes", "2", "--pods", "1")
	nodes := []string{"n1", "n2"}
	for _, node := range nodes {
		c.must("agent", "stop", node)
		c.mustExec(node, warren, "cleanup")
		strictReversePath(t, c.node(node).Namespace)
		c.mustExec(node, "nft", strings.TrimSpace(firewall))
	}
	answersBefore := firewallAnswers(t, c.open().Topology)
	if diff := cmp.Diff(expectedAnswers(c.open().Topology), answersBefore); diff != "" {
		t.Fatalf("the firewall does not do without Warren what the test wants (-want +got):\n%s", diff)
	}
	settingsBefore := map[string]map[string]string{}
	for _, node := range nodes {
		settingsBefore[node] = settings(t, c.node(node).Namespace)
	}

	c.must("agent", append([]string{"start"}, nodes...)...)
	c.mustVerify(2 * 4 * 2 * 3)

	if diff := cmp.Diff(answersBefore, firewallAnswers(t, c.open().Topology)); diff != "" {
		t.Errorf("the firewall's answers (-without Warren +with Warren):\n%s", diff)
	}
	for _, node := range nodes {
		after := settings(t, c.node(node).Namespace)
		maps.DeleteFunc(after, func(key, _ string) bool { _, before := settingsBefore[node][key]; return !before })
		if diff := cmp.Diff(settingsBefore[node], after); diff != "" {
			t.Errorf("kernel settings on %s (-without Warren +with Warren):\n%s", node, diff)
		}
	}
}

func strictReversePath(t *testing.T, namespace string) {
	t.Helper()
	var devices []string
	err := netns.Do(namespace, func() error {
		found, err := os.ReadDir("/proc/sys/net/ipv4/conf")
		for _, entry := range found {
			devices = append(devices, entry.Name())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, device := range devices { // "all" and "default" are among them
		if err := netns.Set(namespace, []netns.Setting{{Key: "ipv4/conf/" + device + "/rp_filter", Value: "1"}}); err != nil {
			t.Fatal(err)
		}
	}
}

// settings reads every kernel setting of a namespace but counters.
func settings(t *testing.T, namespace string) map[string]string {
	t.Helper()
	values := map[string]string{}
	err := netns.Do(namespace, func() error {
		return filepath.WalkDir("/proc/sys/net", func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.HasSuffix(path, "_count") {
				return err
			}
			if text, err := os.ReadFile(path); err == nil { // some can only be written
				values[path] = strings.TrimSpace(string(text))
			}
			return nil
		})
	})
	if err != nil || len(values) < 100 {
		t.Fatalf("%d settings: %v", len(values), err)
	}
	return values
}

// firewallAnswers asks the host n2 at both ports, from the host and from a pod of n1, by TCP and UDP.
func firewallAnswers(t *testing.T, topology lab.Topology) map[question]bool {
	t.Helper()
	answers := expectedAnswers(topology)
	for _, at := range firewallServers(topology) {
		defer serve(t, topology.Nodes[1].Namespace, at)()
	}
	var asking sync.WaitGroup
	var mutex sync.Mutex
	for question := range expectedAnswers(topology) {
		asking.Go(func() {
			got := question.ask()
			mutex.Lock()
			defer mutex.Unlock()
			answers[question] = got
		})
	}
	asking.Wait()
	return answers
}

func firewallServers(topology lab.Topology) []netip.AddrPort {
	var servers []netip.AddrPort
	for _, address := range topology.Nodes[1].Addresses {
		servers = append(servers, netip.AddrPortFrom(address, openPort), netip.AddrPortFrom(address, closedPort))
	}
	return servers
}

// question is one try to reach a server.
type question struct {
	from    string // namespace
	network string
	at      netip.AddrPort
}

func expectedAnswers(topology lab.Topology) map[question]bool {
	n1 := topology.Nodes[0]
	answers := map[question]bool{}
	for _, at := range firewallServers(topology) {
		for _, from := range []string{n1.Namespace, n1.Pods[0].Namespace} {
			for _, network := range []string{"tcp", "udp"} {
				answers[question{from, network, at}] = at.Port() == openPort
			}
		}
	}
	return answers
}

// ask tries a few times within two seconds.
func (q question) ask() bool {
	err := netns.Do(q.from, func() error {
		connection, err := net.DialTimeout(q.network, q.at.String(), 2*time.Second)
		if err != nil {
			return err
		}
		defer connection.Close()
		for range 4 {
			_, _ = connection.Write([]byte{1})
			_ = connection.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
			if n, _ := connection.Read(make([]byte, 1)); n == 1 {
				return nil
			}
		}
		return errors.New("no answer")
	})
	return err == nil
}

// serve answers one byte with one byte at an address, by TCP and UDP, until stopped.
func serve(t *testing.T, namespace string, at netip.AddrPort) (stop func()) {
	t.Helper()
	var packets net.PacketConn
	var connections net.Listener
	err := netns.Do(namespace, func() (err error) {
		if packets, err = net.ListenPacket("udp", at.String()); err == nil {
			connections, err = net.Listen("tcp", at.String())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		buffer := make([]byte, 1)
		for {
			_, from, err := packets.ReadFrom(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			_, _ = packets.WriteTo(buffer, from)
		}
	}()
	go func() {
		for {
			connection, err := connections.Accept()
			if err != nil {
				return
			}
			_, _ = connection.Write([]byte{1})
			_ = connection.Close()
		}
	}()
	return func() { _, _ = packets.Close(), connections.Close() }
}
