package agent

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warren/internal/api"
	"warren/internal/cluster"
	"warren/internal/config"
	"warren/internal/datapath/model"
	"warren/internal/ipcache"
	"warren/internal/netdev"
	"warren/internal/plan"
)

func TestBackoffDoublesUpToTheLongestPause(t *testing.T) {
	var b backoff
	var got []time.Duration
	for range 9 {
		got = append(got, b.fail())
	}
	want := []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000}
	for i := range want {
		want[i] *= time.Millisecond
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
	for range 1000 {
		if pause := b.fail(); pause != longestPause {
			t.Fatalf("after many failures: %s", pause)
		}
	}
	b.reset()
	if pause := b.fail(); pause != firstPause {
		t.Errorf("after success: %s", pause)
	}
}

// TestFailuresPause: what only a round can do does not wake an agent whose rounds fail.
func TestFailuresPause(t *testing.T) {
	c := config.Default()
	a := &agent{
		Options: Options{Config: c}, world: plan.NewWorld(cluster.SourceDirectory, false), departures: plan.NewDepartures(holdRule(c)),
		probing: newProbing(), synced: true, memory: memory{stale: true},
	}
	if got := a.untilDue(); got != 0 {
		t.Errorf("a snapshot to be saved is due in %v", got)
	}
	a.backoff.fail()
	if got := a.untilDue(); got < longestPause {
		t.Errorf("after a round that failed something is due in %v", got)
	}
}

func TestProblemsKeepTheirAgeAndAreLoggedOnce(t *testing.T) {
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	var p problems
	first := api.Problem{Where: "device", Message: "no", Remedy: "yes"}
	p.set("step device", []api.Problem{first}, at(1), logger)
	p.set("discovery", []api.Problem{{Where: "a.yaml:1", Message: "bad"}}, at(2), logger)
	p.set("step device", []api.Problem{first}, at(3), logger)
	want := []api.Problem{
		{Where: "a.yaml:1", Message: "bad", Since: at(2)},
		{Where: "device", Message: "no", Remedy: "yes", Since: at(1)},
	}
	if diff := cmp.Diff(want, p.all()); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	p.set("step device", nil, at(4), logger)
	if got := len(p.all()); got != 1 {
		t.Errorf("%d problems after one was mended", got)
	}
	if n := strings.Count(log.String(), "msg=problem "); n != 2 {
		t.Errorf("problems were logged %d times:\n%s", n, log.String())
	}
	if n := strings.Count(log.String(), "problem is gone"); n != 1 {
		t.Errorf("the end of a problem was logged %d times:\n%s", n, log.String())
	}
}

func TestPrimaryUnderlay(t *testing.T) {
	addr := netip.MustParseAddr
	links := []netdev.Link{
		{Index: 2, Addrs: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}},
		{Index: 3, Addrs: []netip.Prefix{netip.MustParsePrefix("198.51.100.1/24")}},
	}
	for _, test := range []struct {
		name  string
		first netip.Addr
		want  uint32
	}{
		{"the device with the node's first address", addr("198.51.100.1"), 3},
		{"the first device when none has it", addr("203.0.113.1"), 2},
	} {
		if got := primary(links, test.first); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}

func record(name, addr string, key byte) cluster.Node {
	return cluster.Node{
		ID: cluster.NodeID{Cluster: cluster.DefaultCluster, Name: name}, Addresses: []netip.Addr{netip.MustParseAddr(addr)},
		Keys: []cluster.Key{{Public: cluster.PublicKey{key}, Epoch: 1, Port: cluster.DefaultPort}},
	}
}

func TestRefusalsNameBothOwnersOfAnAddress(t *testing.T) {
	world := plan.NewWorld(cluster.SourceDirectory, false)
	self, n2, n3, n4 := record("n1", "10.0.0.1", 1), record("n2", "10.0.0.2", 2), record("n3", "10.0.0.2", 3), record("n4", "10.0.0.4", 2)
	world.Apply(plan.Change{Self: &self}, plan.Change{Upsert: &n2}, plan.Change{Upsert: &n3})
	world.Apply(plan.Change{Upsert: &n4})
	var all []string
	for _, p := range refusals(world) {
		all = append(all, p.Where+": "+p.Message)
		if p.Remedy == "" {
			t.Errorf("no remedy for %s", p.Where)
		}
	}
	text := strings.Join(all, "\n")
	for _, want := range []string{"node default/n4: record refused", "already belongs to default/n2", "prefix 10.0.0.2/32: node/default/n3 says owner otherwise than node/default/n2"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

func TestPacketForIsWhatWasAskedFor(t *testing.T) {
	for _, test := range []struct {
		name string
		q    api.Question
		port uint16
		want uint8
	}{
		{"UDP over IPv4", question("10.0.0.1", "10.0.0.2", "udp", 53), 53, 17},
		{"TCP over IPv6", question("fd00::1", "fd00::2", "tcp", 443), 443, 6},
		{"echo over IPv4", question("10.0.0.1", "10.0.0.2", "icmp", 0), 0, 1},
		{"echo over IPv6", question("fd00::1", "fd00::2", "icmp", 0), 0, 58},
	} {
		t.Run(test.name, func(t *testing.T) {
			packet, unreadable := model.Parse(packetFor(test.q), model.Meta{})
			if unreadable != 0 {
				t.Fatalf("cannot be read: %v", unreadable)
			}
			if packet.Src != test.q.Source || packet.Dst != test.q.Destination || packet.Protocol != test.want {
				t.Errorf("read as %+v", packet)
			}
		})
	}
}

func question(src, dst, protocol string, port uint16) api.Question {
	return api.Question{Source: netip.MustParseAddr(src), Destination: netip.MustParseAddr(dst), Protocol: protocol, Port: port}
}

func TestWatchersThatAreTooSlowAreEnded(t *testing.T) {
	slow, fast := make(chan api.Delta, 1), make(chan api.Delta, 8)
	w := watchers{slow: {}, fast: {}}
	entry := ipcache.Entry{Identity: 6}
	for range 3 {
		w.send([]ipcache.Delta{{Prefix: netip.MustParsePrefix("10.0.0.2/32"), New: &entry}}, time.Unix(1, 0))
	}
	if _, still := w[slow]; still {
		t.Error("a full watcher is still served")
	}
	<-slow
	if _, open := <-slow; open {
		t.Error("a watcher that missed a change is not told")
	}
	if len(fast) != 3 {
		t.Errorf("the other one got %d changes of 3", len(fast))
	}
}
