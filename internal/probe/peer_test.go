package probe

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"warren/internal/cluster"
)

func permissive() Options { return Options{Mode: cluster.ModePermissive} }

// brief is what the situations look at.
type brief struct {
	Phase         string
	Send, Enforce bool
}

func briefOf(s State) brief { return brief{Phase: s.Phase.String(), Send: s.Send, Enforce: s.Enforce} }

// event lets something happen, then time pass, and looks at both nodes.
type event struct {
	do   func(w *wire)
	wait time.Duration
	want [2]brief
}

func both(phase string, send, enforce bool) [2]brief {
	b := brief{phase, send, enforce}
	return [2]brief{b, b}
}

func TestPeer(t *testing.T) {
	kill := func(w *wire) { w.nodes[1].dead = true }
	revive := func(w *wire) { w.nodes[1].dead = false }
	mode := func(i int, m cluster.Mode) func(w *wire) {
		return func(w *wire) { w.nodes[i].peer.SetMode(w.now, m); w.apply(i) }
	}
	working := Options{Mode: cluster.ModePermissive, Kernel: Kernel{Sends: true, Enforces: true}}
	for _, test := range []struct {
		name  string
		a, b  Options
		steps []event
	}{
		{name: "two nodes that start together", a: permissive(), b: permissive(), steps: []event{
			{want: both("configured", false, false)},
			{wait: 2 * latency, want: both("confirmed", true, false)},
			{wait: inFlight, want: both("confirmed", true, false)},
			{wait: inFlight, want: both("confirmed", true, true)},
		}},
		{name: "the peer starts later", a: permissive(), b: permissive(), steps: []event{
			{do: kill, wait: time.Minute, want: [2]brief{{"configured", false, false}, {"unknown", false, false}}},
			{do: revive, wait: 4 * latency, want: both("confirmed", true, false)},
			{wait: 3 * time.Second, want: both("confirmed", true, true)},
		}},
		{name: "the peer never starts", a: permissive(), b: permissive(), steps: []event{
			{do: kill, wait: silentIsDown - time.Millisecond, want: [2]brief{{"configured", false, false}, {"unknown", false, false}}},
			{wait: time.Millisecond, want: [2]brief{{"down", false, false}, {"unknown", false, false}}},
		}},
		{name: "the peer's agent dies: nothing changes for packets", a: permissive(), b: permissive(), steps: []event{
			{wait: 5 * time.Second},
			{do: kill, wait: 20 * time.Second, want: [2]brief{{"stale", true, true}, {"confirmed", true, true}}},
			{wait: 4 * time.Minute, want: [2]brief{{"down", true, true}, {"confirmed", true, true}}},
			{do: revive, wait: 11 * time.Second, want: both("confirmed", true, true)},
		}},
		{name: "agent restarts, the kernel goes on", a: working, b: working, steps: []event{
			{want: both("confirmed", true, true)},
			{wait: time.Hour, want: both("confirmed", true, true)},
		}},
		{name: "agent restarts while the peer's is dead", a: working, b: permissive(), steps: []event{
			{do: kill, wait: time.Hour, want: [2]brief{{"down", true, true}, {"unknown", false, false}}},
		}},
		{name: "the peer lost its kernel state: accepted in clear until it encrypts again", a: working, b: permissive(), steps: []event{
			{wait: 3 * latency, want: both("confirmed", true, false)},
			{wait: 3 * time.Second, want: both("confirmed", true, true)},
		}},
		{name: "enforcement of strict alone does not outlive strict", b: permissive(),
			a: Options{Mode: cluster.ModePermissive, Kernel: Kernel{Enforces: true}, KernelMode: cluster.ModeStrict}, steps: []event{
				{want: both("configured", false, false)},
			}},
		{name: "strict goes on after a restart, without another grace", b: permissive(),
			a: Options{Mode: cluster.ModeStrict, Kernel: Kernel{Enforces: true}, KernelMode: cluster.ModeStrict}, steps: []event{
				{want: [2]brief{{"configured", false, true}, {"configured", false, false}}},
			}},
		{name: "strict drops a silent peer after its grace, and permissive takes it back",
			a: Options{Mode: cluster.ModeStrict}, b: permissive(), steps: []event{
				{do: kill, wait: strictGrace - time.Millisecond, want: [2]brief{{"configured", false, false}, {"unknown", false, false}}},
				{wait: time.Millisecond, want: [2]brief{{"configured", false, true}, {"unknown", false, false}}},
				{do: mode(0, cluster.ModePermissive), want: [2]brief{{"configured", false, false}, {"unknown", false, false}}},
			}},
		{name: "a strict peer that observes is dropped all the same", a: Options{Mode: cluster.ModeStrict}, b: Options{}, steps: []event{
			{wait: 5 * time.Second, want: [2]brief{{"confirmed", true, false}, {"confirmed", false, false}}},
			{wait: 6 * time.Second, want: [2]brief{{"confirmed", true, true}, {"confirmed", false, false}}},
		}},
		{name: "observe changes nothing, and knows that it could", steps: []event{
			{wait: time.Minute, want: both("confirmed", false, false)},
			{do: mode(0, cluster.ModePermissive), want: [2]brief{{"confirmed", true, false}, {"confirmed", false, false}}},
			{wait: 3 * time.Second, want: [2]brief{{"confirmed", true, false}, {"confirmed", false, false}}},
			{do: mode(1, cluster.ModePermissive), wait: 3 * time.Second, want: both("confirmed", true, true)},
		}},
		{name: "back to observe: the peer stops enforcing before encryption ends", a: permissive(), b: permissive(), steps: []event{
			{wait: 5 * time.Second, want: both("confirmed", true, true)},
			{do: mode(0, cluster.ModeObserve), want: [2]brief{{"confirmed", true, false}, {"confirmed", true, true}}},
			{wait: 3 * latency, want: both("confirmed", true, false)},
			{wait: firstPause + 4*latency, want: [2]brief{{"confirmed", false, false}, {"confirmed", true, false}}},
		}},
		{name: "back to observe while the peer's agent is dead: after a while", a: permissive(), b: permissive(), steps: []event{
			{wait: 5 * time.Second},
			{do: func(w *wire) { kill(w); mode(0, cluster.ModeObserve)(w) }, wait: withdrawGrace - time.Millisecond,
				want: [2]brief{{"stale", true, false}, {"confirmed", true, true}}},
			{wait: time.Millisecond, want: [2]brief{{"stale", false, false}, {"confirmed", true, true}}},
			{do: mode(0, cluster.ModePermissive), want: [2]brief{{"stale", false, true}, {"confirmed", true, true}}},
			{do: revive, wait: 11 * time.Second, want: both("confirmed", true, true)},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWire(test.a, test.b)
			for i, step := range test.steps {
				if step.do != nil {
					step.do(w)
				}
				w.run(step.wait)
				if step.want == [2]brief{} {
					continue
				}
				if diff := cmp.Diff(step.want, [2]brief{briefOf(w.state(0)), briefOf(w.state(1))}); diff != "" {
					t.Errorf("step %d (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}

func TestRequestAloneConfirmsNothing(t *testing.T) {
	w := newWire(permissive(), permissive())
	w.lose = func(from, _ int) bool { return from == 0 } // the peer is heard, and hears nothing
	w.run(time.Minute)
	want := [2]brief{{"configured", false, false}, {"configured", false, false}}
	if diff := cmp.Diff(want, [2]brief{briefOf(w.state(0)), briefOf(w.state(1))}); diff != "" {
		t.Errorf("after a minute (-want +got):\n%s", diff)
	}
}

// What was held back on the wire must not pass for what the peer says now.
func TestOldWordsAreNotNews(t *testing.T) {
	w := newWire(permissive(), permissive())
	w.run(5 * time.Second)
	p, before := w.nodes[0].peer, w.state(0)
	old := Stance{Mode: cluster.ModePermissive}
	p.Request(w.now, Message{Kind: Request, Stance: old}, 0)
	if diff := cmp.Diff(before, p.State(w.now)); diff != "" {
		t.Errorf("after an old request (-want +got):\n%s", diff)
	}
	first, second := p.Tick(w.now)[0].Message, Message{}
	w.now += 5 * time.Second
	for _, send := range p.Tick(w.now) {
		second = send.Message
	}
	p.Reply(w.now, Message{Kind: Reply, Nonce: second.Nonce, Stance: before.Peer})
	p.Reply(w.now, Message{Kind: Reply, Nonce: first.Nonce, Stance: old})
	if got := p.State(w.now); got.Peer != before.Peer || !got.Enforce {
		t.Errorf("after an old reply: %+v, want %+v enforced", got.Peer, before.Peer)
	}
}

// A peer that has told that it encrypts no longer may count on it: a reply that it gave before must not begin
// enforcement.
func TestReplyOlderThanTheLastRequestBeginsNothing(t *testing.T) {
	for _, test := range []struct {
		name     string
		requests []Stance
		want     bool
	}{
		{"no request", nil, true},
		{"it encrypts no longer", []Stance{{Mode: cluster.ModeObserve}}, false},
		{"it encrypts", []Stance{{Mode: cluster.ModePermissive, Encrypting: true}}, false}, // news: the next reply counts
	} {
		t.Run(test.name, func(t *testing.T) {
			p := New(0, permissive())
			p.Reply(latency, Message{Kind: Reply, Nonce: p.Tick(0)[0].Message.Nonce, Stance: Stance{Mode: cluster.ModeObserve}})
			var asked []Send
			now := latency
			for len(asked) == 0 {
				now = p.Next()
				asked = p.Tick(now)
			}
			for _, said := range test.requests {
				p.Request(now, Message{Kind: Request, Stance: said}, 0)
			}
			p.Reply(now+latency, Message{Kind: Reply, Nonce: asked[0].Message.Nonce, Stance: Stance{Mode: cluster.ModePermissive, Encrypting: true}})
			if got := p.State(now + 2*inFlight).Enforce; got != test.want {
				t.Errorf("enforcement %t, want %t", got, test.want)
			}
		})
	}
}

func TestRepliesThatAnswerNothing(t *testing.T) {
	now := time.Duration(0)
	p := New(now, Options{Mode: cluster.ModePermissive, Seed: 1000})
	nonce := p.Tick(now)[0].Message.Nonce
	for name, wrong := range map[string]uint64{"before": nonce - 1, "after": nonce + 1, "zero": 0} {
		p.Reply(now, Message{Kind: Reply, Nonce: wrong})
		if got := briefOf(p.State(now)); got != (brief{Phase: "configured"}) {
			t.Errorf("nonce %s: %+v", name, got)
		}
	}
	p.Reply(now, Message{Kind: Reply, Nonce: nonce})
	if got := briefOf(p.State(now)); got != (brief{"confirmed", true, false}) {
		t.Errorf("the right nonce: %+v", got)
	}
	p.Reply(now+time.Hour, Message{Kind: Reply, Nonce: nonce, Stance: Stance{Encrypting: true}})
	if got := p.State(now + time.Hour); got.Peer.Encrypting {
		t.Error("the same reply counts twice")
	}
}

func TestPauses(t *testing.T) {
	gaps := func(p *Peer, count int, answer bool) (gaps []time.Duration) {
		last := time.Duration(0)
		for now := time.Duration(0); len(gaps) < count; now = p.Next() {
			for _, send := range p.Tick(now) {
				gaps, last = append(gaps, (now-last).Round(100*time.Millisecond)), now
				if answer {
					p.Reply(now+latency, Message{Kind: Reply, Nonce: send.Message.Nonce})
				}
			}
		}
		return gaps
	}
	near := func(got, want []time.Duration) bool {
		for i := range want {
			if got[i] < want[i]*9/10-50*time.Millisecond || got[i] > want[i]*11/10+50*time.Millisecond {
				return false
			}
		}
		return true
	}
	s, ms := time.Second, time.Millisecond
	for _, test := range []struct {
		name   string
		o      Options
		answer bool
		want   []time.Duration
	}{
		{"nobody answers", Options{}, false, []time.Duration{0, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 5 * s, 5 * s}},
		{"answers", Options{}, true, []time.Duration{0, 10 * s, 10 * s, 10 * s}},
		{"answers, of many peers", Options{Interval: 50 * s}, true, []time.Duration{0, 50 * s, 50 * s}},
		{"used to answer", Options{Kernel: Kernel{Sends: true}}, false, []time.Duration{0, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 2 * s, 6400 * ms, 10 * s}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.o.Seed = rand.Uint64()
			got := gaps(New(0, test.o), len(test.want), test.answer)
			if !near(got, test.want) {
				t.Errorf("pauses %v, want about %v", got, test.want)
			}
		})
	}
}

func TestRoundTripAndLoss(t *testing.T) {
	p := New(0, Options{Mode: cluster.ModePermissive})
	now, sent := time.Duration(0), 0
	for ; sent < 200; now = p.Next() {
		for _, send := range p.Tick(now) {
			if sent++; sent%4 != 0 {
				p.Reply(now+30*time.Millisecond, Message{Kind: Reply, Nonce: send.Message.Nonce})
			}
		}
	}
	s := p.State(now + time.Second)
	if s.RTT != 30*time.Millisecond || s.LastRTT != s.RTT || s.Lost != 8 || s.Requests != 32 {
		t.Errorf("RTT %v, last %v, lost %d of %d; want 30ms twice, 8 of 32", s.RTT, s.LastRTT, s.Lost, s.Requests)
	}
	if s.Phase != Confirmed {
		t.Errorf("phase %v for a quarter lost", s.Phase)
	}
}

// Whatever is lost, news reaches the peer soon: until it has answered a request that tells them, requests follow fast.
func TestHasteEndsWhenThePeerKnows(t *testing.T) {
	p := New(0, Options{Mode: cluster.ModePermissive, Kernel: Kernel{Sends: true}})
	reply := func(now time.Duration, sends []Send) {
		p.Reply(now, Message{Kind: Reply, Nonce: sends[0].Message.Nonce})
	}
	reply(latency, p.Tick(0))
	now := p.Next()
	before := p.Tick(now)
	p.Applied(now, Kernel{Sends: true, Enforces: true})
	reply(now+latency, before)
	if next := p.Next(); next > now+firstPause {
		t.Fatalf("news at %v are told at %v", now, next)
	}
	now = p.Next()
	told := p.Tick(now)
	if !told[0].Message.Enforcing {
		t.Errorf("told %+v, not that it enforces", told[0].Message.Stance)
	}
	if next := p.Next(); next > now+2*firstPause {
		t.Errorf("without an answer they are told again at %v, after %v", next, now)
	}
	reply(now+latency, told)
	if next := p.Next(); next < now+defaultInterval/2 {
		t.Errorf("when the peer knows them it is asked again at %v, after %v", next, now)
	}
}

// Both nodes confirm and enforce whatever is lost, as long as seven of ten packets arrive, after any changes of
// mode. Where all but a few arrive, no node ever sends in clear what the other drops.
func TestPropertyLossDelaysOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := Options{Mode: cluster.ModePermissive, Seed: rapid.Uint64().Draw(t, "seed")}
		w := newWire(a, a)
		random := rand.New(rand.NewPCG(a.Seed, 1))
		loss := rapid.SampledFrom([]float64{0, 0.05, 0.3}).Draw(t, "loss")
		w.lose = func(int, int) bool { return random.Float64() < loss }
		modes := rapid.SliceOfN(rapid.SampledFrom([]cluster.Mode{cluster.ModeObserve, cluster.ModePermissive, cluster.ModeStrict}), 0, 6).Draw(t, "modes")
		for i, mode := range append(modes, cluster.ModePermissive, cluster.ModePermissive) {
			n := (len(modes) + i) % 2
			w.nodes[n].peer.SetMode(w.now, mode)
			w.apply(n)
			w.run(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "ms")) * time.Millisecond)
		}
		w.run(2 * time.Minute)
		if w.lost > 0 && loss < 0.1 {
			t.Fatalf("%d times clear packets were dropped; modes %v", w.lost, modes)
		}
		for i := range w.nodes {
			if got := briefOf(w.state(i)); got != (brief{"confirmed", true, true}) && got != (brief{"stale", true, true}) {
				t.Fatalf("node %d after modes %v: %+v", i, modes, got)
			}
		}
	})
}

// A driver that waits until Next never waits in vain, and never turns in a circle.
func TestPropertyNextIsAfterTick(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := New(0, Options{Mode: cluster.ModePermissive, Seed: rapid.Uint64().Draw(t, "seed"), Path: Path{Largest: 1440}})
		now := time.Duration(0)
		for range 200 {
			for _, send := range p.Tick(now) {
				if rapid.Bool().Draw(t, "answered") {
					p.Reply(now+latency, Message{Kind: Reply, Nonce: send.Message.Nonce, FirstFragment: rapid.SampledFrom([]uint16{0, 1396}).Draw(t, "fragment")})
				}
			}
			p.Tick(now)
			state := p.State(now)
			next := p.Next()
			if next <= now {
				t.Fatalf("Next is %v after Tick at %v", next, now)
			}
			if got := p.State(next - 1); briefOf(got) != briefOf(state) {
				t.Fatalf("between %v and %v: %+v became %+v", now, next, briefOf(state), briefOf(got))
			}
			now = next
		}
	})
}

func TestNames(t *testing.T) {
	got := fmt.Sprint(Unknown, Configured, Confirmed, Stale, Down, Phase(9), cluster.ModeObserve, cluster.ModePermissive, cluster.ModeStrict, cluster.Mode(9))
	want := "unknown configured confirmed stale down phase(9) observe permissive strict mode(9)"
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A peer that an earlier agent had heard to encrypt is enforced on without a gap when it says so again, so that a restart
// writes nothing that is there already.
func TestAdoptedEnforcementHasNoGap(t *testing.T) {
	p := New(0, Options{Mode: cluster.ModePermissive, KernelMode: cluster.ModePermissive, Kernel: Kernel{Sends: true, Enforces: true}, Seed: 1})
	asked := p.Tick(0)
	if len(asked) == 0 {
		t.Fatal("it is not asked")
	}
	for _, now := range []time.Duration{0, time.Millisecond} {
		if now > 0 {
			p.Reply(now, Message{Kind: Reply, Nonce: asked[0].Message.Nonce, Size: MinSize, Stance: Stance{Confirmed: true, Encrypting: true}})
		}
		if s := p.State(now); !s.Send || !s.Enforce {
			t.Errorf("at %v: send %t, enforce %t", now, s.Send, s.Enforce)
		}
	}
}
