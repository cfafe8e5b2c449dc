package kube

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warren/internal/discovery"
	"warren/internal/discovery/record/recordtest"
)

// TestStatus holds statuses against a golden file: a healthy one, and one in which everything is wrong.
func TestStatus(t *testing.T) {
	good := discovery.Report{Mode: "strict", Version: "v0.1.0", MTU: 1440, Peers: 2, Confirmed: 2, Ready: true}
	refused := []discovery.Problem{{Where: "WarrenConfig default: spec.mark", Message: "mark is ignored", Remedy: "correct it there"}}
	bad := discovery.Report{Mode: "permissive", Peers: 2, Confirmed: 1, NotReady: "the device", KeyRotating: true, Refused: refused}
	config := []discovery.Problem{{Where: "WarrenConfig default: spec.nodes[0].selector", Message: "no selector", Remedy: "correct it"}}
	before := statusOf(good, nil, nodeStatus{}, start)
	after := statusOf(bad, config, before, start.Add(time.Hour))
	text, err := json.MarshalIndent([]nodeStatus{before, after}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	recordtest.Golden(t, "testdata/status.golden", string(text)+"\n")
}

func TestEncrypted(t *testing.T) {
	for _, test := range []struct {
		name   string
		report discovery.Report
		want   string
	}{
		{"nobody so far", discovery.Report{Mode: "strict", Looking: true}, "Unknown LookingForPeers"},
		{"alone", discovery.Report{Mode: "strict"}, "True NoPeers"},
		{"all confirmed", discovery.Report{Mode: "permissive", Peers: 3, Confirmed: 3}, "True AllPeersConfirmed"},
		{"one missing", discovery.Report{Mode: "strict", Peers: 3, Confirmed: 2}, "False PeersUnconfirmed"},
		{"observing", discovery.Report{Mode: "observe", Peers: 3, Confirmed: 3}, "False Observing"},
	} {
		if c := encrypted(test.report); string(c.Status)+" "+c.Reason != test.want {
			t.Errorf("%s: %s %s, want %s", test.name, c.Status, c.Reason, test.want)
		}
	}
}

// TestTransitions: a condition keeps its time as long as its status is the same, whatever its message says, also when it
// was read from the API in between.
func TestTransitions(t *testing.T) {
	report := discovery.Report{Mode: "strict", Peers: 3, Confirmed: 1, NotReady: "links"}
	before := statusOf(report, nil, nodeStatus{}, start.Add(5*time.Millisecond))
	text, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	before = readStatus(text)
	if !before.equal(statusOf(report, nil, before, start.Add(time.Hour))) {
		t.Error("the same report is another status an hour later")
	}
	report.Confirmed, report.NotReady, report.Ready = 2, "", true
	after := statusOf(report, nil, before, start.Add(time.Hour))
	var times []string
	for _, c := range after.Conditions {
		times = append(times, c.Type+" "+c.LastTransitionTime.UTC().Format(time.TimeOnly))
	}
	want := []string{"Ready 05:00:00", "Encrypted 04:00:00", "KeyRotating 04:00:00", "ConfigAccepted 04:00:00"}
	if diff := cmp.Diff(want, times); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if !readStatus(json.RawMessage(`{"mtu":"x"}`)).equal(nodeStatus{}) {
		t.Error("a broken status is read as something")
	}
}

// TestReportPause: a small cluster reports every five seconds at most, a large one twenty times a second as a whole.
func TestReportPause(t *testing.T) {
	for peers, want := range map[int]time.Duration{0: 5 * time.Second, 2: 5 * time.Second, 100: 5 * time.Second, 1000: 50 * time.Second} {
		if got := reportPause(peers); got != want {
			t.Errorf("%d peers: %v, want %v", peers, got, want)
		}
	}
}
