package kube

import (
	"errors"
	"strings"
	"testing"
	"time"

	"warren/internal/cluster"
	"warren/internal/discovery/record/recordtest"
)

var start = time.Date(2026, 11, 30, 4, 0, 0, 0, time.UTC)

// has is an API that has the record of a node, which belongs to the Node with that UID.
func has(n cluster.Node, owner string) own {
	o := none(owner)
	o.entry = entries(n.ID.Name)(shown(n, owner), entry{})
	return o
}

// none is an API that has a Node and no record.
func none(uid string) own {
	return own{read: true, nodeThere: true, node: node{uid: ownedBy("", uid)[0].UID}}
}

// TestKeeping follows the own record through what happens to it. Each step is the API as it is seen some time later, and
// says whether the record is written then; writing works unless said otherwise.
func TestKeeping(t *testing.T) {
	mine, theirs := recordtest.Sample("n1", 1), recordtest.Sample("n1", 9)
	edited := mine
	edited.Addresses = addrs("10.0.0.99")
	noNode := has(mine, "1")
	noNode.nodeThere = false
	unread := none("1")
	unread.read = false
	garbage := none("1")
	spoilt := shown(mine, "1")
	spoilt.Spec = []byte(`{"spoilt":true}`)
	garbage.entry = entries("n1")(spoilt, has(mine, "1").entry)
	other := has(mine, "1")
	other.node.uid = "2"

	type step struct {
		after time.Duration
		seen  own
		fails string
		write bool
		err   string // of Publish, part of it
	}
	for _, test := range []struct {
		name  string
		steps []step
	}{
		{"written once, seen, left alone", []step{{0, none("1"), "", true, ""}, {500 * time.Millisecond, none("1"), "", false, ""}, {time.Second, has(mine, "1"), "", false, ""}, {time.Hour, has(mine, "1"), "", false, ""}}},
		{"there from before", []step{{0, has(mine, "1"), "", false, ""}}},
		{"nothing was read yet", []step{{0, unread, "", false, "not said yet"}, {time.Minute, unread, "", false, "not said yet"}, {0, none("1"), "", true, "does not show it"}}},
		{"no Node", []step{{0, has(mine, "1"), "", false, ""}, {time.Minute, own{read: true}, "", false, "no Node"}, {time.Hour, has(mine, "1"), "", false, ""}}},
		{"edited, deleted, spoilt", []step{{0, has(mine, "1"), "", false, ""}, {time.Minute, has(edited, "1"), "", true, ""}, {time.Minute, has(mine, "1"), "", false, ""},
			{time.Minute, none("1"), "", true, ""}, {time.Minute, has(mine, "1"), "", false, ""}, {time.Minute, garbage, "", true, ""}}},
		{"the Node was made anew", []step{{0, has(mine, "1"), "", false, ""}, {time.Minute, other, "", true, ""}, {time.Second, has(mine, "2"), "", false, ""}}},
		{"the owner was taken away", []step{{0, has(mine, "1"), "", false, ""}, {time.Minute, has(mine, ""), "", true, ""}}},
		{"failures come slower and slower", []step{{0, none("1"), "denied", true, "denied"}, {999 * time.Millisecond, none("1"), "", false, "denied"}, {time.Millisecond, none("1"), "denied", true, "denied"},
			{1999 * time.Millisecond, none("1"), "", false, "denied"}, {time.Millisecond, none("1"), "", true, ""}, {time.Second, has(mine, "1"), "", false, ""}}},
		{"written and never seen", []step{{0, none("1"), "", true, ""}, {time.Second, none("1"), "", true, ""}, {5 * time.Second, none("1"), "", true, "does not show it"}}},
		{"another's key, once", []step{{0, has(mine, "1"), "", false, ""}, {time.Minute, has(theirs, "1"), "", true, ""}, {time.Second, has(mine, "1"), "", false, ""}}},
		{"the key of an earlier installation", []step{{0, has(theirs, "1"), "", true, ""}, {time.Second, has(theirs, "1"), "", true, ""}, {time.Second, has(mine, "1"), "", false, ""}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			now := start
			var k keeping
			for i, step := range test.steps {
				now = now.Add(step.after)
				if i == 0 {
					k = k.want(mine, step.seen, now)
				}
				k = k.look(step.seen, now)
				wait, due := k.due(step.seen, now)
				if write := due && wait == 0; write != step.write {
					t.Fatalf("step %d: written %v, due in %v (%v)", i+1, write, wait, due)
				}
				if step.write {
					var err error
					if step.fails != "" {
						err = errors.New(step.fails)
					}
					k = k.wrote(err, now)
				}
				if err := k.err(step.seen, now); (err == nil) != (step.err == "") || err != nil && !strings.Contains(err.Error(), step.err) {
					t.Fatalf("step %d: error %v, want %q", i+1, err, step.err)
				}
				if faults := k.faults(mine.ID); len(faults) > 0 {
					t.Fatalf("step %d: %v", i+1, faults)
				}
			}
		})
	}
}

// TestOlderRecordWillDo: a record that says the same, and was issued before, is not written anew.
func TestOlderRecordWillDo(t *testing.T) {
	old, fresh := recordtest.Sample("n1", 1), recordtest.Sample("n1", 1)
	fresh.Issued = fresh.Issued.Add(time.Hour)
	if k := (keeping{}).want(fresh, has(old, "1"), start); !k.kept || !k.wanted.Issued.Equal(old.Issued) {
		t.Errorf("kept %v, wanted %v", k.kept, k.wanted.Issued)
	}
	if k := (keeping{}).want(old, has(fresh, "1"), start); k.kept {
		t.Error("a record from the future is kept")
	}
}

// TestRivals: two agents that keep the same record tire of it, say so, and stop saying so when one of them is gone.
func TestRivals(t *testing.T) {
	nodes := []cluster.Node{recordtest.Sample("n1", 1), recordtest.Sample("n1", 9)}
	seen, now := none("1"), start
	agents := make([]keeping, 2)
	for i := range agents {
		agents[i] = agents[i].want(nodes[i], seen, now)
	}
	writes, alarmed := 0, time.Duration(0)
	for now.Before(start.Add(time.Hour)) {
		for i := range agents {
			agents[i] = agents[i].look(seen, now)
			if wait, due := agents[i].due(seen, now); due && wait == 0 {
				seen, writes = has(nodes[i], "1"), writes+1
				agents[i] = agents[i].wrote(nil, now).look(seen, now)
			}
		}
		if len(agents[0].faults(nodes[0].ID)) > 0 && alarmed == 0 {
			alarmed = now.Sub(start)
		}
		now = now.Add(500 * time.Millisecond)
	}
	if writes < 10 || writes > 60 {
		t.Errorf("%d writes in an hour", writes)
	}
	if alarmed == 0 || alarmed > 10*time.Second {
		t.Errorf("said so after %v", alarmed)
	}
	for range 100 { // the other one has gone
		agents[0] = agents[0].look(seen, now)
		if wait, due := agents[0].due(seen, now); due && wait == 0 {
			seen = has(nodes[0], "1")
			agents[0] = agents[0].wrote(nil, now)
		}
		now = now.Add(time.Minute)
	}
	if faults := agents[0].faults(nodes[0].ID); len(faults) > 0 || !agents[0].kept {
		t.Errorf("afterwards: kept %v, %v", agents[0].kept, faults)
	}
}
