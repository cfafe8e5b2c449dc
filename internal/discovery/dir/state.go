package dir

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"warren/internal/cluster"
	"warren/internal/discovery"
)

// snapshot is one reading of the folder: everything that the next state depends on.
type snapshot struct {
	path string
	// folder tells one folder from another that took its place; zero when lost.
	folder identity
	// files are the record files by name.
	files map[string]content
	// apiServers is the list of API servers, nil when there is none.
	apiServers *content
	// lost is set when the folder could not be read; then files says nothing.
	lost *discovery.Problem
	// faults are problems around the folder that concern no other machine's record.
	faults []discovery.Problem
}

// identity is that of a folder: device and inode, and the time of birth where the file system has one,
// since inodes are used again.
type identity struct {
	device, inode uint64
	born          int64 // Unix nanoseconds, 0 when unknown
}

// content is a record file as it was read.
type content struct {
	data []byte
	// unreadable says why there is no data; nil when there is.
	unreadable *discovery.Problem
}

// state is what is believed after a snapshot. It is a value: next makes a new one.
//
//	              good                    broken                 gone
//	unknown file  Upsert                  problem                -
//	good file     Upsert if it differs    problem, record kept   Delete
//	broken file   Upsert if it differs    problem, record kept   Delete if a record was kept
//
// and nothing of it while the folder is lost.
type state struct {
	own    string // name of the own record's file, "" for none
	synced bool
	folder identity // of the last snapshot that was not lost
	files  map[string]file
	// apiServers is what the list of API servers says.
	apiServers servers
	// problems are all of them, as last emitted.
	problems []discovery.Problem
}

// file is what one record file has said so far.
type file struct {
	sum      [sha256.Size]byte // of the data that was parsed last; zero for none
	good     *cluster.Node     // the last good record, never changed; nil for none
	problems []discovery.Problem
}

// next returns the state after a snapshot, and the events that lead there from s: records that appear
// or change before those that go, so that an address that moves has its new owner first; each by name.
func (s state) next(snap snapshot) (state, []discovery.Event) {
	to := s
	lost := s.loss(snap)
	if lost == nil {
		to.synced, to.folder, to.files = true, snap.folder, s.read(snap)
		to.apiServers = s.apiServers.read(filepath.Join(snap.path, APIServerFile), snap.apiServers)
	}
	to.problems = to.allProblems(lost, snap.faults)
	return to, to.eventsSince(s)
}

// loss returns why a snapshot cannot be believed, nil when it can. An empty folder in the place of
// another one is what an unmounted file system looks like.
func (s state) loss(snap snapshot) *discovery.Problem {
	if snap.lost != nil {
		return snap.lost
	}
	others := func(name string) bool { return name != s.own }
	if !s.synced || s.folder == snap.folder || !anyKey(s.files, others) || anyKey(snap.files, others) {
		return nil
	}
	return &discovery.Problem{
		Where:   snap.path,
		Message: "the folder was replaced by one without records of other machines; those of before are kept",
		Remedy:  "mount the file system again, or restart the agent if the other machines are gone",
	}
}

func anyKey[V any](m map[string]V, match func(string) bool) bool {
	for key := range m {
		if match(key) {
			return true
		}
	}
	return false
}

// read returns what every file of the snapshot says, given what it said before.
func (s state) read(snap snapshot) map[string]file {
	files := make(map[string]file, len(snap.files))
	for name, c := range snap.files {
		files[name] = s.files[name].read(filepath.Join(snap.path, name), c)
	}
	return files
}

func (f file) read(path string, c content) file {
	if c.unreadable != nil {
		return file{good: f.good, problems: []discovery.Problem{*c.unreadable}}
	}
	sum := sha256.Sum256(c.data)
	if sum == f.sum {
		return f
	}
	node, err := Unmarshal(path, c.data)
	if err != nil {
		return file{sum: sum, good: f.good, problems: problemsOf(err)}
	}
	return file{sum: sum, good: &node}
}

// nodes returns the records that are believed. A good record has the name of its file, so that no two
// files speak for one machine.
func (s state) nodes() map[cluster.NodeID]*cluster.Node {
	nodes := make(map[cluster.NodeID]*cluster.Node, len(s.files))
	for _, f := range s.files {
		if f.good != nil {
			nodes[f.good.ID] = f.good
		}
	}
	return nodes
}

func (s state) allProblems(lost *discovery.Problem, faults []discovery.Problem) []discovery.Problem {
	all := slices.Clone(faults)
	if lost != nil {
		all = append(all, *lost)
	}
	all = append(all, s.apiServers.problems...)
	for _, f := range s.files {
		for i, p := range f.problems {
			if i == 0 && f.good != nil {
				p.Message += fmt.Sprintf(" (the record issued %s is kept)", f.good.Issued.Format(time.RFC3339))
			}
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b discovery.Problem) int {
		return cmp.Or(cmp.Compare(a.Where, b.Where), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(all)
}

// eventsSince returns what leads a consumer from one state to s.
func (s state) eventsSince(from state) []discovery.Event {
	var events []discovery.Event
	before, after := from.nodes(), s.nodes()
	for _, id := range sortedIDs(after) {
		if old, known := before[id]; !known || old != after[id] && !same(*old, *after[id]) {
			events = append(events, discovery.Event{Kind: discovery.Upsert, ID: id, Node: *after[id]})
		}
	}
	if !slices.Equal(from.apiServers.good, s.apiServers.good) {
		events = append(events, discovery.Event{Kind: discovery.APIServers, APIServers: s.apiServers.good})
	}
	for _, id := range sortedIDs(before) {
		if _, still := after[id]; !still {
			events = append(events, discovery.Event{Kind: discovery.Delete, ID: id})
		}
	}
	if !slices.Equal(from.problems, s.problems) {
		events = append(events, discovery.Event{Kind: discovery.Problems, Problems: s.problems})
	}
	if s.synced && !from.synced {
		events = append(events, discovery.Event{Kind: discovery.Synced})
	}
	return events
}

func sortedIDs(nodes map[cluster.NodeID]*cluster.Node) []cluster.NodeID {
	return slices.SortedFunc(maps.Keys(nodes), cluster.NodeID.Compare)
}

// same reports whether two nodes have the same record.
func same(a, b cluster.Node) bool { return bytes.Equal(Marshal(a), Marshal(b)) }
