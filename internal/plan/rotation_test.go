package plan

import (
	"fmt"
	"testing"
	"time"

	"warren/internal/cluster"
)

func TestRotation(t *testing.T) {
	moved := func(name string) KeyUse { return KeyUse{Node: id(name), Answers: true} }
	silent := KeyUse{Node: id("n2"), Sends: true, Receives: true}
	type step struct {
		at      time.Duration // since the second key was made
		uses    []KeyUse
		stage   RotationStage
		waiting string
		late    bool
	}
	for _, test := range []struct {
		name  string
		steps []step
	}{
		{"nobody else is there", []step{{at: 0}, {at: time.Second}, {at: 2 * time.Second, stage: Withdrawn}, {at: 6 * time.Second, stage: Withdrawn}, {at: 7 * time.Second, stage: Replaced}}},
		{"both peers move", []step{
			{at: 0, uses: []KeyUse{silent, moved("n3")}, waiting: "n2"},
			{at: time.Second, uses: []KeyUse{moved("n2"), moved("n3")}},
			{at: 2900 * time.Millisecond, uses: []KeyUse{moved("n2"), moved("n3")}},
			{at: 3 * time.Second, uses: []KeyUse{moved("n2"), moved("n3")}, stage: Withdrawn},
		}},
		{"the peer answers through the new key, and this node still sends by the old one", []step{
			{at: 0, uses: []KeyUse{{Node: id("n2"), Answers: true, Sends: true}}, waiting: "n2"},
			{at: time.Hour, uses: []KeyUse{{Node: id("n2"), Answers: true, Sends: true}}, waiting: "n2", late: true},
		}},
		{"the peer answers through the new key, and still sends by the old one", []step{
			{at: time.Hour, uses: []KeyUse{{Node: id("n2"), Answers: true, Receives: true}}, waiting: "n2", late: true},
		}},
		{"a peer that never answers through the new key keeps the old one in force, and is named after ten minutes", []step{
			{at: 9 * time.Minute, uses: []KeyUse{{Node: id("n2")}, moved("n3")}, waiting: "n2"},
			{at: 10 * time.Minute, uses: []KeyUse{{Node: id("n2")}, moved("n3")}, waiting: "n2", late: true},
			{at: 100 * time.Hour, uses: []KeyUse{{Node: id("n2")}, moved("n3")}, waiting: "n2", late: true},
		}},
		{"the peer that never answered is gone", []step{
			{at: time.Hour, uses: []KeyUse{silent, moved("n3")}, waiting: "n2", late: true},
			{at: time.Hour + time.Second, uses: []KeyUse{moved("n3")}},
			{at: time.Hour + 3*time.Second, uses: []KeyUse{moved("n3")}, stage: Withdrawn},
		}},
		{"a peer goes back to the old key in the last moment", []step{
			{at: 0, uses: []KeyUse{moved("n2")}},
			{at: 1900 * time.Millisecond, uses: []KeyUse{silent}, waiting: "n2"},
			{at: 2100 * time.Millisecond, uses: []KeyUse{moved("n2")}},
			{at: 4 * time.Second, uses: []KeyUse{moved("n2")}},
			{at: 4100 * time.Millisecond, uses: []KeyUse{moved("n2")}, stage: Withdrawn},
		}},
		{"a peer that comes when the old key is withdrawn does not bring it back", []step{
			{at: 0}, {at: 2 * time.Second, stage: Withdrawn},
			{at: 3 * time.Second, uses: []KeyUse{silent}, stage: Withdrawn},
			{at: 7 * time.Second, uses: []KeyUse{silent}, stage: Replaced},
			{at: 8 * time.Second, uses: []KeyUse{silent}, stage: Replaced},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			rotation, last := NewRotation(epoch), Moving
			for _, s := range test.steps {
				now := epoch.Add(s.at)
				if changed := rotation.Observe(now, s.uses); changed != (s.stage != last) {
					t.Errorf("after %v: another stage: %t", s.at, changed)
				}
				last = s.stage
				if got := rotation.Stage(); got != s.stage {
					t.Errorf("after %v: %v, want %v", s.at, got, s.stage)
				}
				if got := nodeNames(rotation.Waiting()); got != s.waiting {
					t.Errorf("after %v: waits for %q, want %q", s.at, got, s.waiting)
				}
				if late := len(rotation.Late(now)) > 0; late != s.late {
					t.Errorf("after %v: late %t", s.at, late)
				}
				if n := len(rotation.Waiting()) + len(rotation.Moved()); s.stage == Moving && n != len(s.uses) {
					t.Errorf("after %v: %d of %d peers", s.at, n, len(s.uses))
				}
			}
		})
	}
}

func nodeNames(ids []cluster.NodeID) string {
	text := ""
	for _, id := range ids {
		text += id.Name
	}
	return text
}

// TestRotationsTakeTurns: the keys of a cluster that was installed in one go are not all replaced at once.
func TestRotationsTakeTurns(t *testing.T) {
	const day = 24 * time.Hour
	perHour := map[int]int{}
	for i := range 1000 {
		at := NextRotation(epoch, 10*day, id(fmt.Sprintf("n%d", i))).Sub(epoch)
		if at < 9*day || at > 11*day {
			t.Fatalf("after %v", at)
		}
		perHour[int(at/time.Hour)]++
	}
	for hour, n := range perHour {
		if n > 60 { // 1,000 in 48 hours
			t.Errorf("%d in hour %d", n, hour)
		}
	}
	if a, b := NextRotation(epoch, day, id("n1")), NextRotation(epoch, day, id("n1")); !a.Equal(b) {
		t.Error("another time for the same node")
	}
}
