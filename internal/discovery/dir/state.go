package dir

import (
	"path/filepath"
	"slices"

	"warren/internal/discovery"
	"warren/internal/discovery/record"
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
	record.Believed          // the slots by file name
	own             string   // name of the own record's file, "" for none
	folder          identity // of the last snapshot that was not lost
}

// next returns the state after a snapshot, and the events that lead there from s.
func (s state) next(snap snapshot) (state, []discovery.Event) {
	to := s
	lost, faults := s.loss(snap), snap.faults
	if lost == nil {
		to.Synced, to.folder, to.Slots = true, snap.folder, s.read(snap)
		to.Servers = readServers(s.Servers, filepath.Join(snap.path, APIServerFile), snap.apiServers)
	} else {
		faults = append(slices.Clone(faults), *lost)
	}
	to.Problems = to.AllProblems(faults...)
	return to, to.EventsSince(s.Believed)
}

// loss returns why a snapshot cannot be believed, nil when it can. An empty folder in the place of
// another one is what an unmounted file system looks like.
func (s state) loss(snap snapshot) *discovery.Problem {
	if snap.lost != nil {
		return snap.lost
	}
	others := func(name string) bool { return name != s.own }
	if !s.Synced || s.folder == snap.folder || !anyKey(s.Slots, others) || anyKey(snap.files, others) {
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
func (s state) read(snap snapshot) map[string]record.Slot {
	slots := make(map[string]record.Slot, len(snap.files))
	for name, c := range snap.files {
		if c.unreadable != nil {
			slots[name] = s.Slots[name].Refuse(*c.unreadable)
			continue
		}
		slots[name] = s.Slots[name].Read(filepath.Join(snap.path, name), machineOf(name), c.data)
	}
	return slots
}

// readServers returns what the file of API servers says, given what it said before: one that is gone says
// that there are none.
func readServers(before record.Servers, path string, c *content) record.Servers {
	switch {
	case c == nil:
		return record.Servers{}
	case c.unreadable != nil:
		return before.Refuse(*c.unreadable)
	}
	return before.Read(path, c.data)
}
