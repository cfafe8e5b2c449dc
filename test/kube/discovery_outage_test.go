package kube

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"warren/internal/lab/control"
	"warren/internal/lab/control/controltest"
	"warren/test/admin"
)

// undeleted fails if one of these records was ever deleted.
func (f *follower) undeleted(names ...string) {
	f.t.Helper()
	f.show(func() {
		for _, name := range names {
			if slices.Contains(f.order, "delete "+name) {
				f.t.Errorf("%s was deleted: %v", name, f.order)
			}
		}
	})
}

// TestDiscoveryOutages: an API server that is killed, restored from a snapshot, and wiped. Nothing is forgotten because
// it is away, and everything is right when it is back.
func TestDiscoveryOutages(t *testing.T) {
	ctx, plane := t.Context(), controltest.Own(t)
	install(t, plane)
	a := administratorOf(t, plane)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a.addNode("away-1", "10.99.0.1", "10.244.1.0/24")
	for _, name := range []string{"away-2", "away-3"} {
		a.do(http.MethodPost, allRecords, admin.WarrenNode(sample(name, name[5])))
	}
	f := follow(t, exposed(t, plane), "away-1", nil)
	f.untilSynced()
	f.untilPublished(sample("away-1", 1))
	f.untilRecords("away-1", "away-2", "away-3")

	must(plane.KillComponent(ctx, control.APIServer))
	f.untilProblem("API server not reachable since")
	f.untilRecords("away-1", "away-2", "away-3")
	must(plane.StartComponent(ctx, control.APIServer))
	f.untilProblem()
	a.do(http.MethodPost, allRecords, admin.WarrenNode(sample("away-4", 4)))
	f.untilRecords("away-1", "away-2", "away-3", "away-4")
	f.undeleted("away-1", "away-2", "away-3")

	snapshot := filepath.Join(t.TempDir(), "snapshot")
	must(plane.Snapshot(ctx, snapshot))
	eventually(t, patience, "the API server has found etcd again", func() bool { return plane.Ready(ctx) == nil })
	a.do(http.MethodPost, allRecords, admin.WarrenNode(sample("away-5", 5)))
	for range 50 { // so that revisions go back a good deal
		a.do(http.MethodPatch, allNodes+"/away-1", fields{"metadata": fields{"labels": fields{"x": "1"}}})
		a.do(http.MethodPatch, allNodes+"/away-1", fields{"metadata": fields{"labels": fields{"x": "2"}}})
	}
	f.untilRecords("away-1", "away-2", "away-3", "away-4", "away-5")
	must(plane.Restore(ctx, snapshot))
	f.untilRecords("away-1", "away-2", "away-3", "away-4")
	a.do(http.MethodPost, allRecords, admin.WarrenNode(sample("away-6", 6)))
	f.untilRecords("away-1", "away-2", "away-3", "away-4", "away-6")
	f.untilProblem()

	must(plane.Restore(ctx, ""))
	f.untilProblem("warrennodes.warren.network", "CustomResourceDefinitions")
	f.undeleted("away-1", "away-2", "away-3", "away-4", "away-6")
	install(t, plane)
	f.untilProblem("Node away-1", "no Node")
	a.do(http.MethodPost, allRecords, admin.WarrenNode(sample("away-2", 2)))
	a.addNode("away-1", "10.99.0.1", "10.244.1.0/24")
	f.untilRecords("away-1", "away-2")
	f.untilProblem()
}

// TestDiscoveryStorms: an API server that answers with errors.
func TestDiscoveryStorms(t *testing.T) {
	plane := controltest.Shared(t)
	install(t, plane)
	a := administratorOf(t, plane)
	a.addNode("storm-1", "10.99.0.1")
	t.Cleanup(func() { a.remove(allRecords+"/storm-2", allRecords+"/storm-3", allRecords+"/storm-4") })
	a.do(http.MethodPost, allRecords, admin.WarrenNode(sample("storm-2", 2)))
	gate := openGate(t, a)
	f := follow(t, gate.config, "storm-1", nil)
	f.untilRecords("storm-2")
	f.untilSynced()
	for i, status := range []int{http.StatusServiceUnavailable, http.StatusInternalServerError, http.StatusTooManyRequests, http.StatusGatewayTimeout} {
		name := "storm-" + string("34"[i%2])
		gate.close(status)
		f.untilProblem("API server not reachable since")
		a.do(http.MethodPost, allRecords, admin.WarrenNode(sample(name, 3)))
		gate.close(0)
		f.untilRecords("storm-2", name)
		f.untilProblem()
		a.remove(allRecords + "/" + name)
		f.untilRecords("storm-2")
	}
	f.undeleted("storm-2")
	gate.close(http.StatusForbidden)
	f.untilProblem("let the agent read them")
	gate.close(http.StatusUnauthorized)
	f.untilProblem("does not know this agent")
	gate.close(0)
	f.untilProblem()
	f.undeleted("storm-2")
}

// TestDiscoveryOutdated: watches that end and are taken up at a version that is too old (410) lead to a complete list.
func TestDiscoveryOutdated(t *testing.T) {
	plane := controltest.Shared(t)
	install(t, plane)
	a := administratorOf(t, plane)
	a.addNode("outdated-1", "10.99.0.1")
	t.Cleanup(func() { a.remove(allRecords+"/outdated-2", allRecords+"/outdated-3", allRecords+"/outdated-4") })
	for _, name := range []string{"outdated-2", "outdated-3"} {
		a.do(http.MethodPost, allRecords, admin.WarrenNode(sample(name, name[9])))
	}
	gate := openGate(t, a)
	gate.brief = true
	f := follow(t, gate.config, "outdated-1", nil)
	f.untilRecords("outdated-2", "outdated-3")
	f.untilSynced()
	gate.set(func() { gate.outdated = true })
	eventually(t, patience, "watches were taken up", func() (taken bool) {
		gate.set(func() { taken = gate.counts["outdated"] >= 3 })
		return taken
	})
	a.remove(allRecords + "/outdated-3")
	a.do(http.MethodPost, allRecords, admin.WarrenNode(sample("outdated-4", 4)))
	f.untilRecords("outdated-2", "outdated-4")
	f.undeleted("outdated-2")
	f.show(func() {
		if n := strings.Count(strings.Join(f.order, "\n"), "synced"); n != 1 {
			t.Errorf("synced %d times", n)
		}
	})
}
