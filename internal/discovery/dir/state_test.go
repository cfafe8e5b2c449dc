package dir

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"warren/internal/cluster"
	"warren/internal/discovery"
	"warren/internal/discovery/record"
	"warren/internal/discovery/record/recordtest"
)

// good, broken and misnamed are what a file may hold; unread is a file that cannot be read.
func good(node cluster.Node) content { return content{data: record.Marshal(node)} }

func broken(text string) content { return content{data: []byte(text)} }

func unread() content {
	return content{unreadable: &discovery.Problem{Where: "/nodes/x", Message: "the file cannot be read", Remedy: "repair it"}}
}

func folder(files map[string]content) snapshot {
	return snapshot{path: "/nodes", folder: identity{inode: 1}, files: files}
}

func lost() snapshot { return lostSnapshot("/nodes", fmt.Errorf("input/output error")) }

// show writes events one a line, for comparison.
func show(events []discovery.Event) string {
	var text strings.Builder
	for _, e := range events {
		switch e.Kind {
		case discovery.Upsert:
			fmt.Fprintf(&text, "upsert %s %s\n", e.ID, e.Node.Addresses[0])
		case discovery.Problems:
			fmt.Fprintf(&text, "problems %d\n", len(e.Problems))
			for _, p := range e.Problems {
				fmt.Fprintf(&text, "  %s\n", p)
			}
		default:
			fmt.Fprintf(&text, "%s %s\n", e.Kind, e.ID)
		}
	}
	return text.String()
}

// TestStories holds the events of named sequences of snapshots against testdata/stories.
func TestStories(t *testing.T) {
	n1, n2, n3 := recordtest.Sample("n1", 1), recordtest.Sample("n2", 2), recordtest.Sample("n3", 3)
	both := func() snapshot { return folder(map[string]content{"n1.yaml": good(n1), "n2.yaml": good(n2)}) }
	replaced := func(s snapshot) snapshot { s.folder.inode++; return s }
	faulty := func(s snapshot) snapshot {
		s.faults = []discovery.Problem{{Where: "/nodes", Message: "changes are not reported", Remedy: "raise the limit"}}
		return s
	}
	elsewhere := n1
	elsewhere.ID.Cluster = "other"
	stories := []struct {
		name  string
		steps []snapshot
	}{
		{"a-node-joins-changes-and-leaves", []snapshot{
			folder(nil), folder(map[string]content{"n1.yaml": good(n1)}), folder(map[string]content{"n1.yaml": good(recordtest.Sample("n1", 9))}), folder(nil)}},
		{"nothing-changes", []snapshot{both(), both()}},
		{"an-address-moves", []snapshot{both(), folder(map[string]content{"n2.yaml": good(recordtest.Sample("n2", 1))})}},
		{"half-written-then-whole", []snapshot{
			both(), folder(map[string]content{"n1.yaml": good(n1), "n2.yaml": broken("version: 1\nname: n")}), both()}},
		{"broken-then-removed", []snapshot{both(), folder(map[string]content{"n1.yaml": good(n1), "n2.yaml": broken("")}), folder(map[string]content{"n1.yaml": good(n1)})}},
		{"broken-from-the-start", []snapshot{folder(map[string]content{"n1.yaml": good(n1), "n2.yaml": broken("version: 7\n")}), both()}},
		{"unreadable-file", []snapshot{both(), folder(map[string]content{"n1.yaml": unread(), "n2.yaml": good(n2)}), both()}},
		{"two-files-claim-one-node", []snapshot{both(), folder(map[string]content{"n1.yaml": good(n1), "n2.yaml": good(recordtest.Sample("n1", 7))}), both()}},
		{"a-node-changes-its-cluster", []snapshot{both(), folder(map[string]content{"n1.yaml": good(elsewhere), "n2.yaml": good(n2)})}},
		{"lost-from-the-start", []snapshot{lost(), lost(), both()}},
		{"lost-and-found", []snapshot{both(), lost(), lost(), folder(map[string]content{"n1.yaml": good(n1), "n3.yaml": good(n3)})}},
		{"unmounted-and-mounted", []snapshot{both(), replaced(folder(nil)), replaced(folder(map[string]content{"n1.yaml": good(n1)})), both()}},
		{"emptied-in-place", []snapshot{both(), folder(nil)}},
		{"replaced-by-a-full-one", []snapshot{both(), replaced(folder(map[string]content{"n2.yaml": good(n2), "n3.yaml": good(n3)})), replaced(folder(nil))}},
		{"faults-come-and-go", []snapshot{faulty(both()), faulty(lost()), both()}},
	}
	for _, story := range stories {
		t.Run(story.name, func(t *testing.T) {
			believed := state{own: "n1.yaml"}
			var text strings.Builder
			for i, snap := range story.steps {
				var events []discovery.Event
				believed, events = believed.next(snap)
				fmt.Fprintf(&text, "step %d\n%s", i+1, show(events))
			}
			recordtest.Golden(t, "testdata/stories/"+story.name+".golden", text.String())
		})
	}
}

// TestUnchangedFilesAreNotParsedAgain: a thousand records cost nothing while they stay the same.
func TestUnchangedFilesAreNotParsedAgain(t *testing.T) {
	files := map[string]content{}
	for i := range 50 {
		node := recordtest.Sample(fmt.Sprintf("n%d", i), byte(i))
		files[FileName(node.ID)] = good(node)
	}
	believed, _ := state{}.next(folder(files))
	parsed := believed.Slots["n7.yaml"].Node()
	believed, _ = believed.next(folder(files))
	if believed.Slots["n7.yaml"].Node() != parsed {
		t.Error("n7.yaml was parsed again")
	}
}

// model is what a consumer makes of events: it applies what it is told.
type model struct {
	nodes    map[cluster.NodeID]string
	problems []discovery.Problem
	synced   int
}

func (m *model) apply(t *rapid.T, e discovery.Event) {
	switch e.Kind {
	case discovery.Upsert:
		if text := string(record.Marshal(e.Node)); m.nodes[e.ID] == text || e.Node.ID != e.ID {
			t.Fatalf("upsert of what was known, or of another: %s\n%s", e.ID, text)
		}
		m.nodes[e.ID] = string(record.Marshal(e.Node))
	case discovery.Delete:
		if _, known := m.nodes[e.ID]; !known {
			t.Fatalf("delete of what was unknown: %s", e.ID)
		}
		delete(m.nodes, e.ID)
	case discovery.Problems:
		m.problems = e.Problems
	case discovery.Synced:
		m.synced++
	}
}

// drawing is a folder as the property test draws it, with what it means by the plain rules.
type drawing struct {
	snap  snapshot
	good  map[string]cluster.Node // by file
	files map[string]bool         // that are there at all
}

func drawFolder(t *rapid.T) drawing {
	if rapid.IntRange(0, 5).Draw(t, "lost") == 0 {
		return drawing{snap: lost()}
	}
	d := drawing{snap: folder(map[string]content{}), good: map[string]cluster.Node{}, files: map[string]bool{}}
	d.snap.folder.inode = uint64(rapid.IntRange(1, 2).Draw(t, "inode"))
	for _, name := range []string{"n1", "n2", "n3"} {
		file, node := name+".yaml", recordtest.Sample(name, byte(rapid.IntRange(1, 3).Draw(t, "n")))
		if rapid.IntRange(0, 4).Draw(t, "cluster") == 0 {
			node.ID.Cluster = "other"
		}
		switch rapid.IntRange(0, 6).Draw(t, file) {
		case 0, 1:
			continue
		case 2:
			d.snap.files[file] = broken(string(record.Marshal(node)[:rapid.IntRange(0, 150).Draw(t, "cut")]))
		case 3:
			d.snap.files[file] = unread()
		case 4:
			d.snap.files[file] = good(recordtest.Sample("n1x", 5)) // another's record in this file
		default:
			d.snap.files[file] = good(node)
			d.good[file] = node
		}
		d.files[file] = true
	}
	return d
}

// TestBelieved: after any sequence of folders the consumer has the good records of the last one and
// the last good records of its broken files, by a model of ten lines.
func TestBelieved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const own = "n1.yaml"
		believed := state{own: own}
		consumer := model{nodes: map[cluster.NodeID]string{}}
		var last drawing                     // the last folder that counted
		kept := map[string]cluster.Node(nil) // by file
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			d := drawFolder(t)

			empty := func(files map[string]bool) bool { return !files["n2.yaml"] && !files["n3.yaml"] }
			unmounted := kept != nil && d.snap.folder != last.snap.folder && !empty(last.files) && empty(d.files)
			if d.snap.lost == nil && !unmounted {
				now := maps.Clone(d.good)
				for file := range d.files {
					if node, was := kept[file]; was && now[file].ID.Name == "" {
						now[file] = node
					}
				}
				kept, last = now, d
			}

			var events []discovery.Event
			believed, events = believed.next(d.snap)
			for _, e := range events {
				consumer.apply(t, e)
			}
			want := map[cluster.NodeID]string{}
			for _, node := range kept {
				want[node.ID] = string(record.Marshal(node))
			}
			if diff := cmp.Diff(want, consumer.nodes); diff != "" {
				t.Fatalf("(-want +got)\n%s", diff)
			}
			if (consumer.synced == 1) != (kept != nil) || consumer.synced > 1 {
				t.Fatalf("synced %d times", consumer.synced)
			}
			if !slices.Equal(consumer.problems, believed.Problems) {
				t.Fatalf("problems: told %v, believed %v", consumer.problems, believed.Problems)
			}
			if wrong := d.snap.lost != nil || unmounted || len(d.files) > len(d.good); wrong && len(consumer.problems) == 0 {
				t.Fatal("something is wrong, and nobody was told")
			}
		}
	})
}

// TestSameSnapshotTwice: what was told is not told again.
func TestSameSnapshotTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		believed := state{own: "n1.yaml"}
		for range rapid.IntRange(1, 4).Draw(t, "steps") {
			d := drawFolder(t)
			believed, _ = believed.next(d.snap)
			again, events := believed.next(d.snap)
			if len(events) > 0 {
				t.Fatalf("told again:\n%s", show(events))
			}
			believed = again
		}
	})
}

// TestFromAnyState: a folder that is whole and good leads to the same records from wherever one was.
func TestFromAnyState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		believed := state{own: "n1.yaml"}
		for range rapid.IntRange(0, 4).Draw(t, "steps") {
			believed, _ = believed.next(drawFolder(t).snap)
		}
		whole := folder(map[string]content{"n1.yaml": good(recordtest.Sample("n1", 1)), "n2.yaml": good(recordtest.Sample("n2", 2))})
		after, _ := believed.next(whole)
		fresh, _ := state{own: "n1.yaml"}.next(whole)
		if diff := cmp.Diff(fresh.Nodes(), after.Nodes(), recordtest.SameNode); diff != "" {
			t.Fatalf("(-fresh +after)\n%s", diff)
		}
		if len(after.Problems) > 0 {
			t.Fatalf("problems left: %v", after.Problems)
		}
	})
}
