package agent

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warren/internal/cluster"
	"warren/internal/config"
	"warren/internal/discovery"
	"warren/internal/plan"
)

// pureAgent is one that has no drivers.
func pureAgent(c config.Config, self cluster.Node) *agent {
	a := &agent{
		Options: Options{Config: c, Log: slog.New(slog.DiscardHandler)}, id: self.ID, world: plan.NewWorld(sourceOf(c.Discovery), false),
		departures: plan.NewDepartures(holdRule(c)), probing: newProbing(),
	}
	a.apply(plan.Change{Self: &self})
	return a
}

// TestDepartures: what becomes of n2, the only peer, when its record goes; by engine.
func TestDepartures(t *testing.T) {
	n1, n2 := record("n1", "10.0.0.1", 1), record("n2", "10.0.0.2", 2)
	gone, left := discovery.Event{Kind: discovery.Delete, ID: n2.ID}, discovery.Event{Kind: discovery.Delete, ID: n2.ID, Left: true}
	seen, synced := discovery.Event{Kind: discovery.Upsert, ID: n2.ID, Node: n2}, discovery.Event{Kind: discovery.Synced}
	const ranOut = "keys ran out (default/n2), the agents of these nodes are away; each stays a peer until nothing has come from it for 1h0m0s"
	for _, test := range []struct {
		name       string
		engine     config.Discovery
		remembered bool
		events     []discovery.Event
		after      time.Duration
		peer       bool
		says       string
	}{
		{"a file is removed", config.DiscoveryDir, false, []discovery.Event{seen, synced, gone}, 3 * time.Second, false, ""},
		{"a key runs out", config.DiscoveryEtcd, false, []discovery.Event{seen, synced, gone}, 3 * time.Second, true, ranOut},
		{"a key ran out, and nothing was heard", config.DiscoveryEtcd, false, []discovery.Event{seen, synced, gone}, time.Hour + time.Second, false, ""},
		{"a key says that its machine left", config.DiscoveryEtcd, false, []discovery.Event{seen, synced, left}, 0, false, ""},
		{"a key ran out, and its machine is said to be gone", config.DiscoveryEtcd, false, []discovery.Event{seen, synced, gone, left}, 0, false, ""},
		{"a key ran out and is back", config.DiscoveryEtcd, false, []discovery.Event{seen, synced, gone, seen}, 3 * time.Second, true, ""},
		{"a key ran out while this agent was away", config.DiscoveryEtcd, true, []discovery.Event{synced}, 3 * time.Second, true, ranOut},
		{"a machine left while this agent was away", config.DiscoveryEtcd, true, []discovery.Event{left, synced}, 0, false, ""},
		{"a machine left that nobody knew", config.DiscoveryEtcd, false, []discovery.Event{left, synced}, 3 * time.Second, false, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := config.Default()
			c.Discovery = test.engine
			a := pureAgent(c, n1)
			if test.remembered {
				a.apply(plan.Change{Remember: []cluster.Node{n2}})
			}
			for _, event := range test.events {
				a.take(event, nil)
			}
			now := time.Now()
			a.letGo(now.Add(min(test.after, 3*time.Second))) // is it to be held?
			a.letGo(now.Add(test.after))
			if peer := len(a.world.Admission().Peers) > 0; peer != test.peer {
				t.Errorf("n2 is a peer: %t", peer)
			}
			says := ""
			for _, p := range a.problems.all() {
				says = p.Message
			}
			if diff := cmp.Diff(test.says, says); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestNodes: n2 is listed, with what became of it, as long as it is a peer.
func TestNodes(t *testing.T) {
	n1, n2, n3 := record("n1", "10.0.0.1", 1), record("n2", "10.0.0.2", 2), record("n3", "10.0.0.3", 3)
	present := []plan.Change{{Upsert: &n2}, {Upsert: &n3}}
	remembered := []plan.Change{{Remember: []cluster.Node{n2, n3}}}
	gone := func(a *agent) {
		a.departures.Gone(n2.ID, time.Now())
		a.departures.Gone(n3.ID, time.Now())
		a.letGo(time.Now().Add(settle + time.Second))
	}
	for _, test := range []struct {
		name    string
		records []plan.Change
		then    func(*agent)
		want    string
	}{
		{"its record is there", present, func(*agent) {}, "peer"},
		{"its record vanished with another", present, gone, "held"},
		{"an earlier agent knew it", remembered, func(*agent) {}, "remembered"},
		{"an earlier agent knew it, and its record is gone with another", remembered, gone, "held"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := pureAgent(config.Default(), n1)
			a.apply(test.records...)
			test.then(a)
			var got []string
			for _, node := range a.nodes() {
				got = append(got, node.Name+" "+node.State)
			}
			if diff := cmp.Diff([]string{"n1 self", "n2 " + test.want, "n3 " + test.want}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
