package etcd

import (
	"maps"
	"slices"

	"warren/internal/cluster"
	"warren/internal/discovery"
	"warren/internal/discovery/record"
)

// news is what keys say now; nil is a key that is gone.
type news map[string][]byte

// state is what is believed. It is a value: whatever changes it makes a new one.
//
//	             good                   broken                 withdrawn      gone
//	no record    Upsert                 problem                Delete, Left   -
//	a record     Upsert if it differs   problem, record kept   Delete, Left   Delete
type state struct {
	record.Believed // the slots by machine
	layout          layout
	self            cluster.NodeID
	left            map[string]bool // machines whose key says that they are withdrawn
}

func newState(l layout, self cluster.NodeID) state {
	return state{Believed: record.Believed{Slots: map[string]record.Slot{}}, layout: l, self: self, left: map[string]bool{}}
}

// complete adds to a reading of all keys that those which are believed and were not read are gone.
func (s state) complete(all news) news {
	for name := range s.Slots {
		s.missing(all, s.layout.nodes()+name)
	}
	for name := range s.left {
		s.missing(all, s.layout.nodes()+name)
	}
	s.missing(all, s.layout.apiServers())
	return all
}

func (s state) missing(all news, key string) {
	if _, read := all[key]; !read {
		all[key] = nil
	}
}

// next returns the state after some keys have changed.
func (s state) next(changed news) state {
	s.Slots, s.left = maps.Clone(s.Slots), maps.Clone(s.left)
	for key, text := range changed {
		if name, ok := s.layout.machineOf(key); ok {
			s.read(key, name, text)
		} else if key == s.layout.apiServers() {
			s.Servers = s.readServers(key, text)
		}
	}
	return s
}

func (s state) read(key, name string, text []byte) {
	delete(s.left, name)
	switch {
	case text == nil:
		delete(s.Slots, name)
	case isWithdrawn(text):
		delete(s.Slots, name)
		s.left[name] = true
	default:
		s.Slots[name] = s.Slots[name].Read(key, name, text)
	}
}

func (s state) readServers(key string, text []byte) record.Servers {
	if text == nil {
		return record.Servers{}
	}
	return s.Servers.Read(key, text)
}

// eventsSince returns what leads a consumer from one state to s. The own record that has run out is no event:
// it is about to be written again.
func (s state) eventsSince(from state) []discovery.Event {
	events := slices.DeleteFunc(s.EventsSince(from.Believed), func(e discovery.Event) bool {
		return e.Kind == discovery.Delete && e.ID == s.self && !s.hasLeft(e.ID)
	})
	told := map[string]bool{}
	for i, e := range events {
		if e.Kind == discovery.Delete {
			events[i].Left, told[e.ID.Name] = s.hasLeft(e.ID), true
		}
	}
	var unheard []discovery.Event
	for _, name := range slices.Sorted(maps.Keys(s.left)) {
		if !from.left[name] && !told[name] {
			unheard = append(unheard, discovery.Event{Kind: discovery.Delete, ID: cluster.NodeID{Cluster: s.self.Cluster, Name: name}, Left: true})
		}
	}
	return append(unheard, events...)
}

// hasLeft reports whether a machine that has no record has withdrawn it. One whose key has the record of a
// machine in another cluster has left this one.
func (s state) hasLeft(id cluster.NodeID) bool {
	return s.left[id.Name] || s.Slots[id.Name].Node() != nil
}
