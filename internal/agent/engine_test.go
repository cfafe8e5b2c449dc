package agent

import (
	"testing"

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
	a.Config.Mode, a.view.mode = config.ModeObserve, config.ModePermissive
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
