package etcd

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"warren/internal/cluster"
	"warren/internal/discovery"
	"warren/internal/discovery/record"
	"warren/internal/discovery/record/recordtest"
)

const testLayout = layout("/warren/v1")

var self = cluster.NodeID{Cluster: "default", Name: "n1"}

// says is the text of the record of a machine.
func says(name string, n byte) []byte { return record.Marshal(recordtest.Sample(name, n)) }

// at returns news of machines by name.
func at(texts map[string][]byte) news {
	list := news{}
	for name, text := range texts {
		list[testLayout.nodes()+name] = text
	}
	return list
}

// show writes events in one line each.
func show(events []discovery.Event) string {
	var lines []string
	for _, e := range events {
		switch {
		case e.Kind == discovery.Upsert:
			lines = append(lines, fmt.Sprintf("upsert %s %s", e.ID, e.Node.Addresses[0]))
		case e.Kind == discovery.Delete && e.Left:
			lines = append(lines, fmt.Sprintf("left %s", e.ID))
		case e.Kind == discovery.Delete:
			lines = append(lines, fmt.Sprintf("delete %s", e.ID))
		case e.Kind == discovery.APIServers:
			lines = append(lines, fmt.Sprintf("api-servers %v", e.APIServers))
		case e.Kind == discovery.Problems:
			lines = append(lines, fmt.Sprintf("problems %v", e.Problems))
		default:
			lines = append(lines, e.Kind.String())
		}
	}
	return strings.Join(lines, "\n")
}

// step is what is read in a story: all keys, or changed ones.
type step struct {
	all  bool
	news news
	want string
}

// TestStories plays what keys say, one after the other.
func TestStories(t *testing.T) {
	n1, n2 := says("n1", 1), says("n2", 2)
	elsewhere := recordtest.Sample("n2", 2)
	elsewhere.ID.Cluster = "other"
	left := []byte("withdrawn\n")
	one := func(name string, text []byte) news { return at(map[string][]byte{name: text}) }
	listed := step{true, at(map[string][]byte{"n1": n1, "n2": n2}), "upsert default/n1 10.0.0.1\nupsert default/n2 10.0.0.2\nsynced"}
	for name, steps := range map[string][]step{
		"nothing there":     {{true, news{}, "synced"}, {true, news{}, ""}},
		"read twice":        {listed, {true, listed.news, ""}},
		"a machine changes": {listed, {false, one("n2", says("n2", 3)), "upsert default/n2 10.0.0.3"}},
		"a key runs out":    {listed, {false, one("n2", nil), "delete default/n2"}, {false, one("n2", n2), "upsert default/n2 10.0.0.2"}},
		"ran out while nobody listened": {
			listed, {true, one("n1", n1), "delete default/n2"}},
		"a machine leaves": {listed, {false, one("n2", left), "left default/n2"}, {false, one("n2", nil), ""}},
		"left while nobody listened": {
			listed, {true, at(map[string][]byte{"n1": n1, "n2": left}), "left default/n2"}, {true, at(map[string][]byte{"n1": n1, "n2": left}), ""}},
		"left before anybody listened": {
			{true, at(map[string][]byte{"n1": n1, "n2": left}), "left default/n2\nupsert default/n1 10.0.0.1\nsynced"}},
		"ran out, then an operator says that it is gone": {
			listed, {false, one("n2", nil), "delete default/n2"}, {false, one("n2", []byte("withdrawn")), "left default/n2"}},
		"leaves and comes back": {listed, {false, one("n2", left), "left default/n2"}, {false, one("n2", n2), "upsert default/n2 10.0.0.2"}},
		"the own key runs out":  {listed, {false, one("n1", nil), ""}, {false, one("n1", n1), "upsert default/n1 10.0.0.1"}},
		"this machine leaves":   {listed, {false, one("n1", left), "left default/n1"}},
		"a machine changes its cluster": {
			listed, {false, one("n2", record.Marshal(elsewhere)), "upsert other/n2 10.0.0.2\nleft default/n2"}},
		"garbage, and good again": {
			listed,
			{false, one("n2", []byte("version: 9\n")), "problems [/warren/v1/nodes/n2:1:10: version: 9 is not understood here, only 1 (the record issued 2026-11-30T03:14:00Z is kept); upgrade warren on this node]"},
			{false, one("n2", n2), "problems []"}},
		"garbage, and gone": {
			listed,
			{false, one("n2", []byte("version: 9\n")), "problems [/warren/v1/nodes/n2:1:10: version: 9 is not understood here, only 1 (the record issued 2026-11-30T03:14:00Z is kept); upgrade warren on this node]"},
			{false, one("n2", nil), "delete default/n2\nproblems []"}},
		"the record of another": {
			listed, {false, one("n3", n2), "problems [/warren/v1/nodes/n3:2:7: name: this is the record of default/n2 in the place of n3; remove it, or put it in the place of n2 if there is none]"}},
		"longer than any record": {
			listed, {false, one("n2", make([]byte, 10<<20)), "problems [/warren/v1/nodes/n2: more than 1048576 bytes (the record issued 2026-11-30T03:14:00Z is kept); a document of Warren is far smaller]"}},
		"keys of others": {{true, news{"/warren/v1/else": []byte("x"), "/warren/v10/nodes/n9": n2}, "synced"}},
		"API servers": {
			{true, news{"/warren/v1/apiservers": []byte("version: 1\nendpoints: [10.0.0.1:6443]\n")}, "api-servers [10.0.0.1:6443]\nsynced"},
			{false, news{"/warren/v1/apiservers": []byte("no")}, "problems [/warren/v1/apiservers:1:1: version: missing; the file may be half-written; a record of this Warren has version: 1]"},
			{true, news{}, "api-servers []\nproblems []"}},
	} {
		t.Run(name, func(t *testing.T) {
			now := newState(testLayout, self)
			for i, step := range steps {
				before, read := now, maps.Clone(step.news)
				if step.all {
					read = now.complete(read)
				}
				now = now.next(read)
				now.Synced = true
				now.Problems = now.AllProblems()
				if diff := cmp.Diff(step.want, show(now.eventsSince(before))); diff != "" {
					t.Errorf("step %d (-want +got):\n%s", i+1, diff)
				}
			}
		})
	}
}

// TestConsumer: whoever applies the events has the records that a model of three lines has, whatever was listened to
// and whatever was missed, and hears of all that have left.
func TestConsumer(t *testing.T) {
	texts := [][]byte{nil, nil, []byte("withdrawn"), []byte("broken")}
	rapid.Check(t, func(t *rapid.T) {
		now, told := newState(testLayout, self), newState(testLayout, self)
		keys, kept, consumer, left := map[string][]byte{}, map[string][]byte{}, map[string][]byte{}, map[string]bool{}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"n2", "n3", "n4"}).Draw(t, "name")
			text := rapid.SampledFrom(append(texts, says(name, 1), says(name, 2))).Draw(t, "text")
			keys[name] = text
			if rapid.Bool().Draw(t, "missed") {
				continue
			}
			now = now.next(now.complete(at(keys)))
			for _, e := range now.eventsSince(told) {
				delete(left, e.ID.Name)
				switch e.Kind {
				case discovery.Upsert:
					consumer[e.ID.Name] = record.Marshal(e.Node)
				case discovery.Delete:
					delete(consumer, e.ID.Name)
					left[e.ID.Name] = e.Left
				}
			}
			told = now
			for name, text := range keys {
				if string(text) != "broken" {
					kept[name] = text
				}
				if text == nil || string(text) == "withdrawn" {
					delete(kept, name)
				}
			}
			if diff := cmp.Diff(kept, consumer); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
			for name, text := range keys {
				if string(text) == "withdrawn" && !left[name] {
					t.Fatalf("nobody said that %s has left", name)
				}
			}
		}
	})
}
