package probe

import (
	"fmt"

	"warren/internal/cluster"
)

const (
	maxNodes = 3
	server   = 0 // the node with the API server
)

// state of a whole cluster, comparable and small: there are many. It has no clock, now is always 0.
type state struct {
	nodes [maxNodes]machine
	links [maxNodes * (maxNodes - 1)]link
}

type machine struct {
	published bool // its record, which has its key
	lost      bool // its disk, and with it its first key
	former    bool // what is published has its first key
	mode      cluster.Mode
	elapsed   bool // the grace of the mode has passed
	strict    bool // the kernel's mode, for an agent that restarts
}

// link is the stance of one node towards another, its moments as yes or no, and what surrounds it.
type link struct {
	known                              bool // the record, on disk and in the device
	outdated                           bool // it has the key that the peer has lost
	silent                             bool // the peer has answered, and does not any more
	answered, adopted, released, heard bool
	kernel                             Kernel
	encrypting, enforcing              bool // the peer said
	pending                            bool // enforcement waits for what is in flight
	excused                            bool // clear packets may be dropped: after a reboot, or when an answer never came
	probe                              flying
}

// flying is a request on its way, or the reply to it, and what it says.
type flying struct {
	request, reply        bool
	encrypting, enforcing bool
	informed              bool
}

// link returns what i has of j, another node.
func (st *state) link(i, j int) *link {
	if j > i {
		j--
	}
	return &st.links[i*(maxNodes-1)+j]
}

// setting is where a check begins, and what may happen in it.
type setting struct {
	nodes   int
	mode    cluster.Mode
	old     bool // the mode came into force long before
	known   bool // all have each other's records
	movers  int  // how many nodes change modes
	flights bool // requests and replies take time, get lost and get old, datapaths follow later; else all that is one step
	crashes bool // agents restart, machines reboot
	blocked bool // nothing that is encrypted arrives at node 1
	loses   bool // node 1 loses its disk, once
}

// rules are what is checked: those of stance, or one of them broken. Now is 0.
type rules struct {
	adopt   func(Options) stance
	own     func(*stance) Stance
	request func(*stance, Stance) (differs, outdated bool)
	reply   func(*stance, bool, Stance)
	send    func(*stance) bool
	enforce func(*stance) bool
	silence func(*stance) // the peer has not answered for long
	// forgetful: a reboot loses the records too.
	forgetful bool
	// closed: there is no bootstrap exception.
	closed bool
	// deaf: there is none for a peer that fell silent.
	deaf bool
}

func realRules() rules {
	return rules{
		adopt:   newStance,
		own:     func(s *stance) Stance { return s.own(0, 0) },
		request: func(s *stance, said Stance) (bool, bool) { return s.request(0, said) },
		reply:   func(s *stance, informed bool, said Stance) { s.reply(0, informed, said) },
		send:    func(s *stance) bool { return s.send(0) },
		enforce: func(s *stance) bool { return s.enforce(0) },
		silence: func(*stance) {},
	}
}

// world is what the nodes do in a setting under rules.
type world struct {
	setting
	rules
}

func (w *world) first() state {
	var st state
	for i := range w.nodes {
		st.nodes[i] = machine{published: w.known, mode: w.mode, elapsed: w.old, strict: w.crashes && w.mode == cluster.ModeStrict}
		for _, j := range w.others(i) {
			st.link(i, j).known = w.known
		}
	}
	return st
}

// others returns the nodes but i.
func (w *world) others(i int) []int { return [...][]int{{1, 2}, {0, 2}, {0, 1}}[i][:w.nodes-1] }

// stance builds the real thing.
func (w *world) stance(st *state, i, j int) *stance {
	l, node := st.link(i, j), st.nodes[i]
	s := stance{
		mode: node.mode, answered: l.answered, kernel: l.kernel, adopted: l.adopted, released: l.released,
		heard: l.heard, said: Stance{Encrypting: l.encrypting, Enforcing: l.enforcing},
	}
	if node.elapsed {
		s.since = -max(strictGrace, withdrawGrace)
	}
	if l.pending {
		s.until = inFlight
	}
	return &s
}

func (w *world) keep(st *state, i, j int, s *stance) {
	l := st.link(i, j)
	l.answered, l.kernel, l.adopted, l.released, l.heard = s.answered, s.kernel, s.adopted, s.released, s.heard
	l.encrypting, l.enforcing = s.said.Encrypting, s.said.Enforcing
	l.pending = w.flights && s.said.Encrypting && s.until > 0
	if s.mode == cluster.ModeStrict && st.nodes[i].elapsed && i >= w.movers { // and what the peer says makes no difference
		l.adopted, l.heard, l.encrypting, l.pending = false, false, false, false
	}
}

// word is the part of what a node says that anything depends on here.
func (w *world) word(s *stance) Stance {
	own := w.own(s)
	return Stance{Encrypting: own.Encrypting, Enforcing: own.Enforcing && w.movers > 0}
}

// arrives reports whether a packet gets from i to j; api says that it belongs to a connection with the API server,
// which the bootstrap exception lets pass while the sender, or the receiver, has not confirmed the other. A silent peer
// may begin one in clear, and is answered so.
func (w *world) arrives(st *state, i, j int, api bool) bool {
	there, back := st.link(i, j), st.link(j, i)
	api = api && !w.closed
	answer := api && i == server && w.letsIn(there) && !back.kernel.Sends
	switch {
	case there.kernel.Sends && !answer:
		return w.decrypts(st, i, j)
	case st.nodes[i].mode == cluster.ModeStrict && there.known && !api:
		return false
	}
	return !back.kernel.Enforces || api && (!back.kernel.Sends || j == server && w.letsIn(back))
}

func (w *world) letsIn(l *link) bool { return l.silent && !w.deaf }

// decrypts reports whether what i encrypts to j arrives: each has the other's record, with the key that it has now.
func (w *world) decrypts(st *state, i, j int) bool {
	there, back := st.link(i, j), st.link(j, i)
	return there.known && back.known && !there.outdated && !back.outdated && !(w.blocked && j == 1)
}

// reaches reports whether a node can talk to the API server.
func (w *world) reaches(st *state, i int) bool {
	return i == server || w.arrives(st, i, server, true) && w.arrives(st, server, i, true)
}

// happening changes a state, or reports that it cannot happen in it.
type happening struct {
	name string
	// good ones happen sooner or later while agents live and the network works.
	good bool
	// reboots: the kernel's state is lost.
	reboots bool
	do      func(*state) bool
}

func (w *world) happenings() []happening {
	var all []happening
	for i := range w.nodes {
		all = append(all, w.toNode(i)...)
		for _, j := range w.others(i) {
			all = append(all, w.toLink(i, j)...)
			if w.flights {
				all = append(all, w.inFlight(i, j)...)
			}
		}
	}
	return all
}

func (w *world) toNode(i int) []happening {
	all := []happening{
		{name: fmt.Sprintf("node %d publishes its key", i), good: true, do: func(st *state) bool { return w.publish(st, i) }},
		{name: fmt.Sprintf("node %d: the grace passes", i), good: true, do: func(st *state) bool { return w.elapse(st, i) }},
		{name: fmt.Sprintf("node %d: the datapath leaves strict mode", i), good: true, do: func(st *state) bool { return w.leaveStrict(st, i) }},
	}
	if w.crashes {
		all = append(all,
			happening{name: fmt.Sprintf("node %d: the agent restarts", i), do: func(st *state) bool { return w.restart(st, i) }},
			happening{name: fmt.Sprintf("node %d reboots", i), reboots: true, do: func(st *state) bool { return w.reboot(st, i) }})
	}
	if w.loses && i == 1 {
		all = append(all, happening{name: "node 1 loses its disk", reboots: true, do: w.loseDisk})
	}
	for _, mode := range []cluster.Mode{cluster.ModeObserve, cluster.ModePermissive, cluster.ModeStrict} {
		if i < w.movers {
			all = append(all,
				happening{name: fmt.Sprintf("node %d: mode %v", i, mode), do: func(st *state) bool { return w.setMode(st, i, mode, true) }},
				happening{name: fmt.Sprintf("node %d: mode %v, nobody answers", i, mode), do: func(st *state) bool { return w.setMode(st, i, mode, false) }})
		}
	}
	return all
}

func (w *world) toLink(i, j int) []happening {
	return []happening{
		{name: fmt.Sprintf("node %d gets the record of %d", i, j), good: true, do: func(st *state) bool { return w.know(st, i, j) }},
		{name: fmt.Sprintf("node %d asks %d, which answers", i, j), good: true, do: func(st *state) bool {
			return w.ask(st, i, j) && w.hear(st, i, j) && w.learn(st, i, j)
		}},
		{name: fmt.Sprintf("node %d hears nothing of %d for long", i, j), do: func(st *state) bool { return w.silent(st, i, j) }},
		{name: fmt.Sprintf("node %d hears no more of %d, which cannot answer", i, j), good: true, do: func(st *state) bool { return w.miss(st, i, j) }},
		{name: fmt.Sprintf("node %d changes its datapath for %d", i, j), good: true, do: func(st *state) bool { return w.apply(st, i, j) }},
	}
}

// inFlight is what happens where one request or reply at a time is on its way for long, while others come and go.
func (w *world) inFlight(i, j int) []happening {
	all := []happening{
		{name: fmt.Sprintf("node %d asks %d", i, j), do: func(st *state) bool {
			return st.link(j, i).probe == flying{} && w.ask(st, i, j)
		}},
		{name: fmt.Sprintf("the request of node %d arrives at %d", i, j), good: true, do: func(st *state) bool { return w.hear(st, i, j) }},
		{name: fmt.Sprintf("the reply to node %d arrives from %d", i, j), good: true, do: func(st *state) bool { return w.learn(st, i, j) }},
		{name: fmt.Sprintf("node %d gives up its request to %d", i, j), do: func(st *state) bool { return w.giveUp(st, i, j) }},
		{name: fmt.Sprintf("node %d: nothing clear of %d is on its way any more", i, j), good: true, do: func(st *state) bool { return w.drain(st, i, j) }},
	}
	for _, encrypting := range []bool{false, true} {
		all = append(all, happening{
			name: fmt.Sprintf("an old request of node %d arrives at %d, encrypting: %t", i, j, encrypting),
			do:   func(st *state) bool { return w.replay(st, i, j, encrypting) },
		})
	}
	return all
}

func (w *world) publish(st *state, i int) bool {
	n := &st.nodes[i]
	ok := !n.published && w.reaches(st, i)
	n.published, n.former = n.published || ok, n.former && !ok
	return ok
}

// know is the arrival of a record. One with another key is that of another peer.
func (w *world) know(st *state, i, j int) bool {
	l, of := st.link(i, j), st.nodes[j]
	ok := st.nodes[i].published && w.reaches(st, i)
	switch {
	case ok && of.published && l.outdated:
		*l = link{known: true, excused: l.excused}
	case ok && !l.known && (of.published || of.former):
		l.known, l.outdated = true, !of.published
	default:
		return false
	}
	return true
}

// loseDisk makes a new node of node 1, which has a new key and knows nobody.
func (w *world) loseDisk(st *state) bool {
	n := &st.nodes[1]
	if n.lost {
		return false
	}
	n.lost, n.former, n.published, n.elapsed = true, n.published, false, n.elapsed && w.old
	for _, j := range w.others(1) {
		l, back := st.link(1, j), st.link(j, 1)
		*l = link{excused: l.excused || l.kernel.Sends && w.mode != cluster.ModeStrict}
		back.outdated, back.probe = back.known, flying{}
	}
	return true
}

func (w *world) elapse(st *state, i int) bool {
	n := &st.nodes[i]
	ok := !n.elapsed && n.mode != cluster.ModePermissive // which has no grace
	n.elapsed = n.elapsed || ok
	return ok
}

// restart begins with what the kernel does.
func (w *world) restart(st *state, i int) bool {
	n := &st.nodes[i]
	n.elapsed = n.elapsed && w.old
	for _, j := range w.others(i) {
		if l := st.link(i, j); l.known {
			w.keep(st, i, j, new(w.adopt(Options{Mode: n.mode, Kernel: l.kernel, KernelMode: n.kernelMode()})))
			l.probe, l.silent = flying{}, false
		}
	}
	return n.published
}

// reboot begins with the records on the disk, or without any.
func (w *world) reboot(st *state, i int) bool {
	for _, j := range w.others(i) {
		l := st.link(i, j)
		l.excused = l.excused || l.kernel.Sends && (w.movers > 0 || w.mode != cluster.ModeStrict)
		l.kernel = Kernel{}
		if w.forgetful {
			*l = link{excused: l.excused}
		}
	}
	return w.restart(st, i)
}

func (w *world) setMode(st *state, i int, mode cluster.Mode, fresh bool) bool {
	n := &st.nodes[i]
	if n.mode == mode {
		return false
	}
	for _, j := range w.others(i) {
		if st.link(i, j).known {
			s := w.stance(st, i, j)
			s.setMode(0, mode, fresh)
			w.keep(st, i, j, s)
			st.link(i, j).probe.informed = false
		}
	}
	n.mode, n.elapsed, n.strict = mode, false, n.strict || w.crashes && mode == cluster.ModeStrict
	return true
}

// leaveStrict comes when no peer has anything of strict mode.
func (w *world) leaveStrict(st *state, i int) bool {
	n := &st.nodes[i]
	for _, j := range w.others(i) {
		if l := st.link(i, j); l.known && l.kernel.Enforces != w.enforce(w.stance(st, i, j)) {
			return false
		}
	}
	ok := n.strict && n.mode != cluster.ModeStrict
	n.strict = n.strict && !ok
	return ok
}

func (n machine) kernelMode() cluster.Mode {
	if n.strict {
		return cluster.ModeStrict
	}
	return cluster.ModePermissive
}

// apply does in the kernel what the stance says.
func (w *world) apply(st *state, i, j int) bool {
	l, s := st.link(i, j), w.stance(st, i, j)
	kernel := Kernel{Sends: w.send(s), Enforces: w.enforce(s)}
	if !l.known || kernel == l.kernel {
		return false
	}
	if kernel.Sends {
		l.excused = false
	} else if s.mode == cluster.ModeObserve && st.nodes[i].elapsed {
		l.excused = true
	}
	s.kernel = kernel
	w.keep(st, i, j, s)
	l.probe.informed = false
	return true
}

func (w *world) silent(st *state, i, j int) bool {
	l, s := st.link(i, j), w.stance(st, i, j)
	w.silence(s)
	w.keep(st, i, j, s)
	l.silent = l.silent || w.loses && i == server && l.kernel.Sends // nothing else depends on it
	return l.known
}

// miss is the same where it is sure to happen.
func (w *world) miss(st *state, i, j int) bool {
	return w.loses && !w.decrypts(st, i, j) && w.silent(st, i, j)
}

func (w *world) ask(st *state, i, j int) bool {
	l := st.link(i, j)
	if !l.known || l.probe != (flying{}) {
		return false
	}
	l.probe = flying{request: true, encrypting: w.word(w.stance(st, i, j)).Encrypting, informed: true}
	return true
}

// hear is the arrival of i's request at j, which answers if it has the record.
func (w *world) hear(st *state, i, j int) bool {
	l := st.link(i, j)
	if !l.probe.request || !w.replay(st, i, j, l.probe.encrypting) {
		return false
	}
	word := w.word(w.stance(st, j, i))
	l.probe = flying{reply: true, encrypting: word.Encrypting, enforcing: word.Enforcing, informed: l.probe.informed}
	return true
}

// learn is the arrival of the reply at i.
func (w *world) learn(st *state, i, j int) bool {
	l := st.link(i, j)
	if !l.probe.reply || w.blocked && i == 1 {
		return false
	}
	s := w.stance(st, i, j)
	w.reply(s, l.probe.informed, Stance{Encrypting: l.probe.encrypting, Enforcing: l.probe.enforcing})
	w.keep(st, i, j, s)
	l.probe, l.silent = flying{}, false
	return true
}

func (w *world) giveUp(st *state, i, j int) bool {
	l := st.link(i, j)
	was := l.probe
	l.probe = flying{}
	return was != flying{}
}

func (w *world) drain(st *state, i, j int) bool {
	l := st.link(i, j)
	was := l.pending
	l.pending = false
	return was
}

// replay is the arrival of a request of i at j, which may have been held back for long.
func (w *world) replay(st *state, i, j int, encrypting bool) bool {
	back := st.link(j, i)
	if !w.decrypts(st, i, j) {
		return false
	}
	s := w.stance(st, j, i)
	if _, outdated := w.request(s, Stance{Encrypting: encrypting, Enforcing: s.said.Enforcing}); outdated {
		back.probe.informed = false
	}
	w.keep(st, j, i, s)
	return true
}

// settle lets the datapaths follow where that is no step of its own.
func (w *world) settle(st *state) {
	for i := range w.nodes {
		for _, j := range w.others(i) {
			w.apply(st, i, j)
		}
	}
}

// wrong returns what is wrong with a step, or with the state that it leads to; "" if nothing is.
func (w *world) wrong(before, after *state, step happening) string {
	for i := range w.nodes {
		for _, j := range w.others(i) {
			was, is, back := before.link(i, j), after.link(i, j), after.link(j, i)
			mode, strict := after.nodes[i].mode, after.nodes[i].mode == cluster.ModeStrict || after.nodes[j].mode == cluster.ModeStrict
			switch {
			case was.kernel.Sends && !is.kernel.Sends && mode != cluster.ModeObserve && !step.reboots && was.outdated == is.outdated:
				return fmt.Sprintf("node %d stops encrypting to %d, which is confirmed", i, j)
			case is.kernel.Sends && w.blocked && j == 1:
				return fmt.Sprintf("node %d encrypts to %d, where nothing arrives", i, j)
			case is.known && !is.kernel.Sends && !is.excused && !strict && back.kernel.Enforces && w.enforce(w.stance(after, j, i)):
				return fmt.Sprintf("node %d drops clear packets of %d, which has not promised to encrypt", j, i)
			}
		}
	}
	return ""
}

// lacking returns what a cluster lacks in which all good things have happened; "" if nothing.
func (w *world) lacking(st *state) string {
	for i := range w.nodes {
		for _, j := range w.others(i) {
			l, mode := st.link(i, j), st.nodes[i].mode
			switch {
			case w.blocked:
			case !l.known:
				return fmt.Sprintf("node %d never gets the record of %d", i, j)
			case l.kernel.Sends != (mode != cluster.ModeObserve):
				return fmt.Sprintf("node %d in mode %v for ever: encrypts to %d: %t", i, mode, j, l.kernel.Sends)
			case !w.arrives(st, i, j, false) && !(mode == cluster.ModeObserve && st.nodes[j].mode == cluster.ModeStrict):
				return fmt.Sprintf("packets of node %d never arrive at %d", i, j)
			}
		}
	}
	return ""
}
