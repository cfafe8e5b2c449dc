package plan

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warren/internal/cluster"
)

func TestDepartures(t *testing.T) {
	rule := HoldRule{Settle: 2 * time.Second, Share: 50, Wait: 10 * time.Minute}
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	gone := func(second int, names ...string) func(*Departures) {
		return func(d *Departures) {
			for _, name := range names {
				d.Gone(id(name), at(second))
			}
		}
	}
	back := func(name string) func(*Departures) { return func(d *Departures) { d.Back(id(name)) } }
	judge := func(second int) func(*Departures) { return func(d *Departures) { d.Due(at(second), 4) } }
	tests := []struct {
		name   string
		before []func(*Departures)
		second int
		due    []string
		held   []string
	}{
		{"nothing vanished", nil, 100, nil, nil},
		{"one machine leaves", []func(*Departures){gone(0, "n2")}, 2, []string{"n2"}, nil},
		{"too early to judge", []func(*Departures){gone(0, "n2")}, 1, nil, nil},
		{"half of the peers vanish", []func(*Departures){gone(0, "n2", "n3")}, 2, nil, []string{"n2", "n3"}},
		{"all vanish, one after the other", []func(*Departures){gone(0, "n2"), gone(1, "n3", "n4", "n5")}, 2, nil, []string{"n2", "n3", "n4", "n5"}},
		{"the records come back before they are judged", []func(*Departures){gone(0, "n2", "n3"), back("n2"), back("n3")}, 2, nil, nil},
		{"most come back, and the rest has left", []func(*Departures){gone(0, "n2", "n3", "n4"), back("n2"), back("n3")}, 2, []string{"n4"}, nil},
		{"held ones come back", []func(*Departures){gone(0, "n2", "n3"), judge(2), back("n2"), back("n3")}, 3, nil, nil},
		{"another one vanishes while some are held", []func(*Departures){gone(0, "n2", "n3"), judge(2), gone(60, "n4")}, 63, nil, []string{"n2", "n3", "n4"}},
		{"the wait is over", []func(*Departures){gone(0, "n2", "n3"), judge(2)}, 600, []string{"n2", "n3"}, nil},
		{"one leaves after held ones came back", []func(*Departures){gone(0, "n2", "n3"), judge(2), back("n2"), back("n3"), gone(60, "n4")}, 62, []string{"n4"}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := NewDepartures(rule)
			for _, step := range test.before {
				step(d)
			}
			if diff := cmp.Diff(test.due, names(d.Due(at(test.second), 4))); diff != "" {
				t.Errorf("due (-want +got):\n%s", diff)
			}
			held, _ := d.Held()
			if diff := cmp.Diff(test.held, names(held)); diff != "" {
				t.Errorf("held (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDeparturesBySilence: a machine whose record ran out stays as long as anything comes from it.
func TestDeparturesBySilence(t *testing.T) {
	const wait = 600 // seconds
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	vanish := func(second int, name string) func(*Departures) {
		return func(d *Departures) { d.Gone(id(name), at(second)); d.Due(at(second+2), 10) }
	}
	heard := func(second int, name string) func(*Departures) {
		return func(d *Departures) { d.Heard(id(name), at(second)) }
	}
	for _, test := range []struct {
		name      string
		before    []func(*Departures)
		second    int
		due, held []string
	}{
		{"one vanishes", []func(*Departures){vanish(0, "n2")}, wait - 1, nil, []string{"n2"}},
		{"and is silent", []func(*Departures){vanish(0, "n2")}, wait, []string{"n2"}, nil},
		{"and is heard", []func(*Departures){vanish(0, "n2"), heard(100, "n2")}, wait, nil, []string{"n2"}},
		{"and is heard no more", []func(*Departures){vanish(0, "n2"), heard(100, "n2")}, wait + 100, []string{"n2"}, nil},
		{"each has its own time", []func(*Departures){vanish(0, "n2"), vanish(300, "n3")}, wait, []string{"n2"}, []string{"n3"}},
		{"another is heard", []func(*Departures){vanish(0, "n2"), heard(500, "n3")}, wait, []string{"n2"}, nil},
		{"it says that it left", []func(*Departures){vanish(0, "n2"), func(d *Departures) { d.Back(id("n2")) }}, wait, nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := NewDepartures(HoldRule{Settle: 2 * time.Second, Wait: wait * time.Second, Silence: true})
			for _, step := range test.before {
				step(d)
			}
			if diff := cmp.Diff(test.due, names(d.Due(at(test.second), 10))); diff != "" {
				t.Errorf("due (-want +got):\n%s", diff)
			}
			held, _ := d.Held()
			if diff := cmp.Diff(test.held, names(held)); diff != "" {
				t.Errorf("held (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDeparturesReleased(t *testing.T) {
	d := NewDepartures(HoldRule{Settle: time.Second, Share: 1, Wait: time.Hour})
	now := time.Unix(0, 0)
	d.Gone(id("n3"), now)
	d.Gone(id("n2"), now)
	d.Due(now.Add(time.Second), 2)
	if got := names(d.Release()); !slices.Equal(got, []string{"n2", "n3"}) {
		t.Errorf("released %v", got)
	}
	if _, ok := d.Next(); ok {
		t.Error("something is left to judge")
	}
}

func TestDeparturesWithoutHold(t *testing.T) {
	d := NewDepartures(HoldRule{Settle: time.Second})
	now := time.Unix(0, 0)
	d.Gone(id("n2"), now)
	d.Gone(id("n3"), now)
	if got := names(d.Due(now.Add(time.Second), 2)); len(got) != 2 {
		t.Errorf("due %v, want both", got)
	}
}

func names(ids []cluster.NodeID) []string {
	var list []string
	for _, id := range ids {
		list = append(list, id.Name)
	}
	return list
}

// TestEachDepartureIsLookedAtAsLong: a record that vanishes just before another one is judged may be a file that is being
// replaced.
func TestEachDepartureIsLookedAtAsLong(t *testing.T) {
	start := time.Unix(1700000000, 0)
	d := NewDepartures(HoldRule{Settle: 2 * time.Second, Share: 50, Wait: time.Hour})
	n2, n3 := cluster.NodeID{Cluster: "c", Name: "n2"}, cluster.NodeID{Cluster: "c", Name: "n3"}
	d.Gone(n2, start)
	d.Gone(n3, start.Add(1900*time.Millisecond))
	if diff := cmp.Diff([]cluster.NodeID{n2}, d.Due(start.Add(2*time.Second), 9)); diff != "" {
		t.Errorf("when the first one is judged (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]cluster.NodeID{n3}, d.Due(start.Add(3900*time.Millisecond), 9)); diff != "" {
		t.Errorf("when the second one is (-want +got):\n%s", diff)
	}
}
