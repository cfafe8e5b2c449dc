package probe

import (
	"math"
	"time"

	"warren/internal/cluster"
)

const (
	// firstPause is the pause after the first request that has no answer yet; it doubles with each.
	firstPause = 100 * time.Millisecond
	// longestPause between requests to a peer that never answered.
	longestPause = 5 * time.Second
	// retryPause is the pause after a request that a confirmed peer missed: whether it is stale is to be known
	// soon, also where the interval is long.
	retryPause = time.Second
	// defaultInterval between requests to a confirmed peer.
	defaultInterval = 10 * time.Second
	// settled is a count of requests after which the doubling pause is longer than any interval.
	settled = 32
	// jitter is by which part a pause is longer or shorter at most: 1/jitter.
	jitter = 10
)

// Options of a Peer. The zero value is a peer in observe mode over IPv4, every 10 s.
type Options struct {
	// Mode that this node is in.
	Mode cluster.Mode
	// ModeSince is when the mode came into force, on the clock of all calls; 0: at its beginning.
	ModeSince time.Duration
	// Kernel is what the datapath does for this very key and endpoint already, after a restart of the agent;
	// zero: nothing. A peer that is sent to counts as confirmed.
	Kernel Kernel
	// KernelMode is the mode that the datapath was left in: what it enforced because it was strict is no reason to
	// enforce in another mode. So it leaves strict mode after the last peer's Kernel is changed, not before.
	KernelMode cluster.Mode
	// Epoch of the peer's key, for its information; 0: not said.
	Epoch uint32
	// Interval between requests to a confirmed peer; 0: 10 s. See Interval.
	Interval time.Duration
	// Path has the bounds of the search for a size; without Largest there is none.
	Path Path
	// Seed makes the nonces and the jitter; a random number, another one for each Peer.
	Seed uint64
}

// Send is a packet that is due: Packet of Message, Size bytes long.
type Send struct {
	Message Message
	Size    int
}

// Peer is the state of the tunnel to one peer: one key of it, at one endpoint. Another key or endpoint is
// another Peer. It is not safe for concurrent use.
//
// New is called when the device has the peer, and the disk the record that it came from: from then on this
// node answers, the other side may encrypt, and nothing but the record tells a rebooted node how to decrypt.
type Peer struct {
	stance   stance
	life     life
	requests history
	search   search
	seed     uint64
	epoch    uint32
	interval time.Duration

	ticked time.Duration // when Tick ran last
	next   time.Duration // when the next request is due
	quick  uint          // requests since there was cause for haste; settled when the peer has answered an informed one
	// Number of the first request that is informed: nothing that either side says of itself has changed since.
	informed uint64
	newest   uint64 // number of the youngest request that was answered
	waiting  bool   // for any reply, until expires
	expires  time.Duration
}

// New returns the state of a peer of which nothing is known but its options.
func New(now time.Duration, o Options) *Peer {
	p := &Peer{
		stance: newStance(o),
		life:   newLife(now, o.Kernel.Sends),
		search: newSearch(now, o.Path),
		seed:   o.Seed,
		epoch:  o.Epoch,
		ticked: now,
		next:   now,
	}
	if o.Path.Size != 0 && o.Path.Largest != 0 { // all peers at once, after a restart, would be too much
		p.search.due += time.Duration(p.random() * float64(searchAgain))
	}
	p.SetInterval(o.Interval)
	return p
}

// SetInterval changes the pause between requests to the confirmed peer; 0: 10 s.
func (p *Peer) SetInterval(interval time.Duration) {
	if interval == 0 {
		interval = defaultInterval
	}
	p.interval = max(interval, retryPause)
}

// SetMode changes this node's mode. On the way to observe mode Send stays true until the peer has said that it
// accepts clear packets, or for ten seconds.
func (p *Peer) SetMode(now time.Duration, mode cluster.Mode) {
	before := p.own(now)
	phase, _ := p.life.phase(now)
	p.stance.setMode(now, mode, phase == Confirmed)
	p.tell(now, before)
}

// Applied says what the datapath does from now on. What it does is what the peer is told, not what it should do.
func (p *Peer) Applied(now time.Duration, kernel Kernel) {
	before := p.own(now)
	p.stance.kernel = kernel
	p.tell(now, before)
}

// SetPath changes the bounds of the size, and searches between them at once. Path.Size is not looked at. The same
// bounds change nothing.
func (p *Peer) SetPath(now time.Duration, path Path) { p.search.setPath(now, path) }

// Ask asks the peer at once, and again after short pauses until it answers: something depends on whether it does.
func (p *Peer) Ask(now time.Duration) { p.hurry(now) }

// LargeLost says that large packets to the peer seem to get lost: the size is searched for at once.
func (p *Peer) LargeLost(now time.Duration) { p.search.suspect(now) }

// Tick returns what is to be sent now, and gives up what was not answered in time.
func (p *Peer) Tick(now time.Duration) []Send {
	p.ticked = max(p.ticked, now)
	p.expire(now)
	if p.searches() {
		if size := p.search.tick(now); size != 0 {
			small, large := p.ask(now, MinSize), p.ask(now, size)
			p.search.sent(p.number(small.Message), now+p.requests.timer.timeout())
			return []Send{small, large}
		}
	}
	if now >= p.next {
		return []Send{p.ask(now, MinSize)}
	}
	return nil
}

// Next returns when Tick has something to do, or State is another by time alone. After a Tick that is later than
// the Tick was; after any other call it may be at once.
func (p *Peer) Next() time.Duration {
	next := min(p.next, p.stance.turns(p.ticked), p.life.turns(p.ticked))
	if p.waiting {
		next = min(next, p.expires)
	}
	if p.searches() {
		next = min(next, p.search.next())
	}
	return next
}

// Request returns the answer to a request of the peer. fragment is the length in bytes of the last first fragment,
// outer IP header included, in which packets of the peer's tunnel arrived within the last second or two; 0: they
// arrived whole. To answer does not consume it: it says something of the path, not of one packet.
//
// A request confirms nothing: that this node decrypts the peer does not say that the peer decrypts this node.
// But it is reason to ask at once.
func (p *Peer) Request(now time.Duration, m Message, fragment int) Message {
	differs, outdated := p.stance.request(now, m.Stance)
	if outdated {
		p.informed = p.requests.count
	}
	if differs {
		p.hurry(now)
	}
	return Message{
		Kind:          Reply,
		Nonce:         m.Nonce,
		Size:          m.Size,
		FirstFragment: uint16(min(max(fragment, 0), math.MaxUint16)),
		Stance:        p.own(now),
	}
}

// Reply takes in an answer of the peer. One that answers no request, or the same one again, is passed over.
func (p *Peer) Reply(now time.Duration, m Message) {
	number := p.number(m)
	asked, ok := p.requests.answer(now, number)
	if !ok {
		return
	}
	p.life.reply(now)
	p.waiting = false
	informed := number >= p.informed
	if number >= p.newest { // or an older word would replace a younger one
		p.newest = number
		p.stance.reply(now, informed, m.Stance)
	}
	if informed {
		p.quick = settled
		p.next = max(p.next, asked.at+p.pause())
	}
	p.search.reply(now, number, asked.size, int(m.FirstFragment))
}

// ask makes a request of that size, and puts off the next small one.
func (p *Peer) ask(now time.Duration, size int) Send {
	p.life.request(now)
	number := p.requests.add(now, size)
	if size == MinSize {
		p.next = now + p.pause()
		p.quick++
		p.waiting, p.expires = true, now+p.requests.timer.timeout()
	}
	return Send{
		Message: Message{Kind: Request, Nonce: p.seed + number, Size: uint16(size), Stance: p.own(now)},
		Size:    size,
	}
}

// number is the inverse of the nonce of a request.
func (p *Peer) number(m Message) uint64 { return m.Nonce - p.seed }

// own is what this node says of itself.
func (p *Peer) own(now time.Duration) Stance { return p.stance.own(now, p.epoch) }

// expire counts the last small request as missed when its time is over, and asks a peer that used to answer again soon.
func (p *Peer) expire(now time.Duration) {
	if !p.waiting || now < p.expires {
		return
	}
	p.waiting = false
	p.life.miss(now)
	if p.life.alive && p.life.missed < missedIsStale {
		p.next = min(p.next, now+retryPause)
	}
}

// tell makes haste when the peer does not know yet what this node says of itself now.
func (p *Peer) tell(now time.Duration, before Stance) {
	if p.own(now) != before {
		p.hurry(now)
	}
}

// hurry asks at once, and again after short pauses until a request from now on is answered.
func (p *Peer) hurry(now time.Duration) {
	p.informed, p.quick = p.requests.count, 0
	earliest := now
	if last, ok := p.requests.last(); ok {
		earliest = max(now, last+firstPause)
	}
	p.next = min(p.next, earliest)
}

// searches reports whether the search for a size may go on: it begins only while the peer answers.
func (p *Peer) searches() bool {
	return p.search.running || p.stance.heard && p.life.missed == 0
}

// pause returns the time to the next request.
func (p *Peer) pause() time.Duration {
	pause := p.interval
	if !p.life.alive {
		pause = longestPause
	}
	if p.quick < settled {
		pause = min(pause, firstPause<<p.quick)
	}
	return pause + time.Duration((2*p.random()-1)/jitter*float64(pause))
}

// random returns a number in [0, 1) that depends on the seed and the requests so far (the finalizer of splitmix64).
func (p *Peer) random() float64 {
	x := p.seed + p.requests.count*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return float64((x^x>>31)>>11) / (1 << 53)
}
