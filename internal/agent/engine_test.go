package agent

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warren/internal/cluster"
	"warren/internal/config"
	"warren/internal/discovery"
	"warren/internal/plan"
)

// reporter keeps the last report.
type reporter struct {
	engine
	last discovery.Report
}

func (r *reporter) Report(report discovery.Report) { r.last = report }

// TestReport: who waits for a mode on all machines waits for what their programs do. One that is told to observe
// encrypts until its peers have let go of it.
func TestReport(t *testing.T) {
	r := &reporter{}
	a := &agent{Options: Options{Config: config.Default(), Version: "v1"}, engine: r, world: plan.NewWorld(cluster.SourceDirectory, false)}
	a.Config.Mode, a.view.mode = cluster.ModeObserve, cluster.ModePermissive
	a.report()
	if diff := cmp.Diff(discovery.Report{}, r.last); diff != "" {
		t.Errorf("before discovery has synced (-want +got):\n%s", diff)
	}
	a.synced = true
	a.report()
	if r.last.Mode != "permissive" || r.last.Version != "v1" {
		t.Errorf("report %+v, want mode permissive of v1", r.last)
	}
}

// TestReportLooks: an agent that knows no peer is alone only after a while.
func TestReportLooks(t *testing.T) {
	n1, n2 := record("n1", "10.0.0.1", 1), record("n2", "10.0.0.2", 2)
	tests := []struct {
		name   string
		synced time.Duration // ago
		peers  []plan.Change
		want   bool
	}{
		{name: "nobody so far", want: true},
		{name: "alone", synced: lookFor},
		{name: "a peer at once", peers: []plan.Change{{Self: &n1}, {Upsert: &n2}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := &reporter{}
			a := &agent{Options: Options{Config: config.Default()}, engine: r, world: plan.NewWorld(cluster.SourceDirectory, false)}
			a.synced, a.syncedAt = true, time.Now().Add(-test.synced)
			a.world.Apply(test.peers...)
			a.report()
			if r.last.Looking != test.want {
				t.Errorf("looking = %v with %d peers, want %v", r.last.Looking, r.last.Peers, test.want)
			}
		})
	}
}
