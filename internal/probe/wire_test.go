package probe

import (
	"slices"
	"time"

	"warren/internal/cluster"
)

const latency = 5 * time.Millisecond

// wire is a simulated path between two nodes with real Peers, on a clock of its own that starts at an odd moment.
// Each node's agent carries out its State at once.
type wire struct {
	now    time.Duration
	nodes  [2]node
	flying []flight

	lose func(from int, size int) bool // nil: nothing is lost
	// mtu of the path, outer bytes; 0: any. What is larger arrives in fragments, or not at all if silent.
	mtu    int
	silent bool
	sent   int // packets, replies included

	// lost is how many moments there were in which a node sent in clear what the other dropped, though not for
	// being strict.
	lost int
}

type node struct {
	peer   *Peer
	kernel Kernel
	dead   bool // the agent: it neither asks nor answers
	// The first fragment that arrived last, and when it is forgotten.
	fragment int
	forget   time.Duration
}

type flight struct {
	at       time.Duration
	to       int
	fragment int // length of the first one; 0: whole
	m        Message
}

// newWire makes both nodes' Peers at once.
func newWire(a, b Options) *wire {
	w := &wire{now: 1234567 * time.Millisecond}
	for i, o := range []Options{a, b} {
		o.ModeSince += w.now
		o.Seed += uint64(i+1) << 40
		w.nodes[i] = node{peer: New(w.now, o), kernel: o.Kernel}
	}
	return w
}

// run lets time pass.
func (w *wire) run(d time.Duration) {
	end := w.now + d
	for {
		next := end
		for _, f := range w.flying {
			next = min(next, f.at)
		}
		for _, n := range w.nodes {
			if !n.dead {
				next = min(next, max(n.peer.Next(), w.now))
			}
		}
		w.now = next
		w.deliver()
		for i := range w.nodes {
			w.tick(i)
		}
		w.count()
		if w.now == end {
			return
		}
	}
}

func (w *wire) count() {
	for i, n := range w.nodes {
		other := w.nodes[1-i]
		if !n.kernel.Sends && other.kernel.Enforces && other.peer.own(w.now).Mode != cluster.ModeStrict {
			w.lost++
		}
	}
}

func (w *wire) tick(i int) {
	n := &w.nodes[i]
	if n.dead {
		return
	}
	for _, send := range n.peer.Tick(w.now) {
		w.send(i, send.Message, send.Size)
	}
	w.apply(i)
}

// apply is what an agent does after each step.
func (w *wire) apply(i int) {
	n := &w.nodes[i]
	state := n.peer.State(w.now)
	if kernel := (Kernel{Sends: state.Send, Enforces: state.Enforce}); kernel != n.kernel {
		n.kernel = kernel
		n.peer.Applied(w.now, kernel)
	}
}

func (w *wire) send(from int, m Message, size int) {
	w.sent++
	if w.lose != nil && w.lose(from, size) {
		return
	}
	f := flight{at: w.now + latency, to: 1 - from, m: m}
	if w.mtu != 0 && size+60 > w.mtu {
		if w.silent {
			return
		}
		f.fragment = 20 + (w.mtu-20)/8*8
	}
	w.flying = append(w.flying, f)
}

// fragments says that a node gets first fragments of that length for some time.
func (w *wire) fragments(to, length int, lasting time.Duration) {
	w.nodes[to].fragment, w.nodes[to].forget = length, w.now+lasting
}

func (w *wire) deliver() {
	due := slices.Clone(w.flying)
	w.flying = slices.DeleteFunc(w.flying, func(f flight) bool { return f.at <= w.now })
	for _, f := range due {
		n := &w.nodes[f.to]
		if f.at > w.now || n.dead {
			continue
		}
		if f.fragment != 0 {
			w.fragments(f.to, f.fragment, time.Second)
		}
		if w.now >= n.forget {
			n.fragment = 0
		}
		if f.m.Kind == Reply {
			n.peer.Reply(w.now, f.m)
		} else {
			answer := n.peer.Request(w.now, f.m, n.fragment)
			w.apply(f.to)
			w.send(f.to, answer, MinSize)
		}
		w.apply(f.to)
	}
}

func (w *wire) state(i int) State { return w.nodes[i].peer.State(w.now) }
