package agent

import (
	"testing"

	"warren/internal/config"
	"warren/internal/discovery"
)

// listener is an engine that keeps what it was told last.
type listener struct {
	engine
	last discovery.Report
}

func (l *listener) Report(r discovery.Report) { l.last = r }

// TestReportsTheModeOfThePrograms: a node that is on its way to observe mode has not stopped encrypting. Whoever takes its
// tunnel away by what it says here would cut it off.
func TestReportsTheModeOfThePrograms(t *testing.T) {
	l := &listener{}
	a := rotating(t, []uint32{1}, nil)
	a.engine, a.synced = l, true
	a.Config.Mode, a.view.mode = config.ModeObserve, config.ModePermissive
	if a.report(); l.last.Mode != string(config.ModePermissive) {
		t.Errorf("it reports %q while its programs are in permissive mode", l.last.Mode)
	}
	a.view.mode = config.ModeObserve
	if a.report(); l.last.Mode != string(config.ModeObserve) {
		t.Errorf("it reports %q when its programs have followed", l.last.Mode)
	}
}
