package probe

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"warren/internal/cluster"
)

// A model checker: all that can happen between two or three nodes, in every order, on the real stance of each
// towards each. Time has no length in it: what is to elapse elapses at some time, before or after anything else.
//
// The nodes have the network that a cluster has. Records come from the API server on node 0, over connections
// that are encrypted, in clear, or dropped, as the nodes' kernels do at the moment. Agents restart (the kernel goes
// on) and machines reboot (the kernel's state is lost, the records are on the disk). One machine may lose its disk, comes
// back with another key, and can say so through the API server only. Probes are lost, and requests arrive when they are
// long out of date.
//
// No step may end encryption towards a confirmed peer but a reboot or observe mode, none may begin it where it does
// not arrive, and outside strict mode nobody drops clear packets of a node that has not promised to encrypt. And
// from every state, good things alone lead to a cluster in which every packet arrives, encrypted.

// checker explores the states of a world, nearest first.
type checker struct {
	world
	happenings []happening
	marks      map[state]mark
	states     []state
	from       []origin
}

// mark says that a state was visited, and that good things lead from it to the end.
type mark struct{ seen, fine bool }

// origin is how a state was reached first.
type origin struct{ state, happening int }

func newChecker(set setting, r rules) *checker {
	w := world{setting: set, rules: r}
	return &checker{world: w, happenings: w.happenings(), marks: map[state]mark{}}
}

// explore visits all states, and returns the way to the first that is wrong.
func (c *checker) explore() error {
	c.visit(c.first(), origin{})
	for at := 0; at < len(c.states); at++ {
		for number, h := range c.happenings {
			next := c.states[at]
			if !c.step(&next, h) || next == c.states[at] {
				continue
			}
			wrong := c.wrong(&c.states[at], &next, h)
			if c.visit(next, origin{at, number}) && wrong == "" {
				wrong = c.stuck(next)
			}
			if wrong != "" {
				return fmt.Errorf("%s, after\n\t%s", wrong, strings.Join(append(c.way(at), h.name), "\n\t"))
			}
		}
	}
	return nil
}

func (c *checker) step(st *state, h happening) bool {
	if !h.do(st) {
		return false
	}
	if !c.flights {
		c.settle(st)
	}
	return true
}

// visit reports whether the state is new.
func (c *checker) visit(st state, from origin) bool {
	m := c.marks[st]
	if m.seen {
		return false
	}
	m.seen = true
	c.marks[st] = m
	c.states, c.from = append(c.states, st), append(c.from, from)
	return true
}

func (c *checker) way(to int) []string {
	if to == 0 {
		return nil
	}
	return append(c.way(c.from[to].state), c.happenings[c.from[to].happening].name)
}

// stuck returns what is wrong when only good things happen from now on. A state from which they lead to one that is
// fine is fine too.
func (c *checker) stuck(st state) string {
	way := []state{st}
	for range 100 {
		before := st
		for _, h := range c.happenings {
			next := st
			if !h.good || !c.step(&next, h) {
				continue
			}
			st = next
			if c.marks[st].fine {
				return c.note(way)
			}
			way = append(way, st)
		}
		if st == before {
			if lacking := c.lacking(&st); lacking != "" {
				return lacking
			}
			return c.note(way)
		}
	}
	return "it never comes to rest"
}

func (c *checker) note(fine []state) string {
	for _, st := range fine {
		m := c.marks[st]
		m.fine = true
		c.marks[st] = m
	}
	return ""
}

var (
	twoPermissive = setting{nodes: 2, mode: cluster.ModePermissive, flights: true, crashes: true}
	oneBlocked    = setting{nodes: 2, mode: cluster.ModePermissive, flights: true, crashes: true, blocked: true}
	oneMoves      = setting{nodes: 2, mode: cluster.ModePermissive, known: true, movers: 1, flights: true, crashes: true}
	threeStrict   = setting{nodes: 3, mode: cluster.ModeStrict, old: true, crashes: true}
	oneLoses      = setting{nodes: 2, mode: cluster.ModeStrict, flights: true, crashes: true, loses: true}
	bothMove      = setting{nodes: 2, mode: cluster.ModePermissive, known: true, movers: 2, crashes: true}
)

func TestModel(t *testing.T) {
	for _, test := range []struct {
		name string
		set  setting
	}{
		{"two permissive nodes", twoPermissive},
		{"two strict nodes", setting{nodes: 2, mode: cluster.ModeStrict, flights: true, crashes: true}},
		{"one way is blocked", oneBlocked},
		{"one changes modes, the other is permissive", oneMoves},
		{"one changes modes, the other is strict", setting{nodes: 2, mode: cluster.ModeStrict, old: true, known: true, movers: 1, flights: true}},
		{"both change modes", bothMove},
		{"three permissive nodes", setting{nodes: 3, mode: cluster.ModePermissive, crashes: true}},
		{"three strict nodes", threeStrict},
		{"two strict nodes, one loses its disk", oneLoses},
		{"two permissive nodes, one loses its disk", setting{nodes: 2, mode: cluster.ModePermissive, flights: true, crashes: true, loses: true}},
		{"three strict nodes, one loses its disk", setting{nodes: 3, mode: cluster.ModeStrict, old: true, crashes: true, loses: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			start := time.Now()
			c := newChecker(test.set, realRules())
			if err := c.explore(); err != nil {
				t.Error(err)
			}
			t.Logf("%d states in %v", len(c.states), time.Since(start).Round(time.Millisecond))
		})
	}
}

// TestModelCanFail breaks one rule after the other.
func TestModelCanFail(t *testing.T) {
	for _, test := range []struct {
		name   string
		set    setting
		broken func(r *rules)
		want   string
	}{
		{"encrypt once configured", twoPermissive, func(r *rules) {
			r.send = func(s *stance) bool { return s.mode != cluster.ModeObserve }
		}, "packets of node 0 never arrive at 1"},
		{"a request confirms", oneBlocked, func(r *rules) {
			r.request = func(s *stance, said Stance) (bool, bool) {
				s.answered = true
				return s.request(0, said)
			}
		}, "node 0 encrypts to 1, where nothing arrives"},
		{"silence ends encryption", twoPermissive, func(r *rules) {
			r.silence = func(s *stance) { s.answered = false }
		}, "stops encrypting"},
		{"an agent begins anew", twoPermissive, func(r *rules) {
			r.adopt = func(o Options) stance { return newStance(Options{Mode: o.Mode}) }
		}, "stops encrypting"},
		{"enforce when confirmed", twoPermissive, func(r *rules) {
			r.enforce = func(s *stance) bool { return s.enforce(0) || s.answered && s.mode != cluster.ModeObserve }
		}, "drops clear packets"},
		{"say what is decided, not what is done", twoPermissive, func(r *rules) {
			r.own = func(s *stance) Stance {
				own := s.own(0, 0)
				own.Encrypting = s.send(0)
				return own
			}
		}, "drops clear packets"},
		{"a request counts for what it says", twoPermissive, func(r *rules) {
			r.request = func(s *stance, said Stance) (bool, bool) {
				s.said = said
				return s.request(0, said)
			}
		}, "drops clear packets"},
		{"any reply counts for what it says", oneMoves, func(r *rules) {
			r.reply = func(s *stance, _ bool, said Stance) { s.reply(0, true, said) }
		}, "drops clear packets"},
		{"a request that says no news outdates nothing", oneMoves, func(r *rules) {
			r.request = func(s *stance, said Stance) (bool, bool) {
				differs, _ := s.request(0, said)
				return differs, differs
			}
		}, "drops clear packets"},
		{"observe mode ends encryption at once", oneMoves, func(r *rules) {
			r.send = func(s *stance) bool { return s.answered && s.mode != cluster.ModeObserve }
		}, "drops clear packets"},
		{"enforcement is said when it is there", oneMoves, func(r *rules) {
			r.own = func(s *stance) Stance {
				own := s.own(0, 0)
				own.Enforcing = s.kernel.Enforces
				return own
			}
		}, "drops clear packets"},
		{"enforcement for being strict goes on", oneMoves, func(r *rules) {
			r.adopt = func(o Options) stance { return newStance(Options{Mode: o.Mode, Kernel: o.Kernel}) }
		}, "drops clear packets"},
		{"no bootstrap exception", threeStrict, func(r *rules) { r.closed = true }, "in mode strict for ever: encrypts to 2: false"},
		{"no exception for a peer that fell silent", oneLoses, func(r *rules) { r.deaf = true }, "packets of node 0 never arrive at 1"},
		{"a reboot loses the records", twoPermissive, func(r *rules) { r.forgetful = true }, "packets of node 0 never arrive at 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := realRules()
			test.broken(&r)
			c := newChecker(test.set, r)
			err := c.explore()
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			t.Logf("%d states: %v", len(c.states), err)
		})
	}
}
