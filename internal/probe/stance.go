package probe

import (
	"math"
	"time"

	"warren/internal/cluster"
)

const (
	// inFlight is how long clear packets may still be on their way after the peer has said that all it sends
	// from now on is encrypted: queues of devices and switches are far shorter.
	inFlight = time.Second
	// strictGrace is how long strict mode waits for a peer to say that it encrypts, before it drops clear
	// packets of one that never did.
	strictGrace = 10 * time.Second
	// withdrawGrace is how long a node that goes to observe mode encrypts on for the sake of a peer that has
	// not said that it accepts clear packets.
	withdrawGrace = 10 * time.Second
)

// never is later than everything.
const never = time.Duration(math.MaxInt64)

// Kernel is what the datapath does for one peer.
type Kernel struct {
	// Sends: everything to the peer goes through the tunnel.
	Sends bool
	// Enforces: what comes from the peer in clear is dropped.
	Enforces bool
}

// stance is the part of a peer's state that decides over packets: receiver first, then sender, then
// enforcement, and back in the opposite order. It has no opinion on when to ask, and is comparable.
//
//	this node                              the peer
//	    │  request ──────────────────────────► │  accepts both forms all the time
//	    │ ◄─────────────────────────── reply   │  it decrypts us, we decrypt it:
//	send = true                                │
//	datapath encrypts                          │
//	    │  request, "encrypting" ────────────► │  old perhaps: reason to ask, no more
//	    │ ◄─────────────────────────── request │
//	    │  reply, "encrypting" ──────────────► │  fresh: an answer to its own nonce
//	    │                                      │  1 s: what was in flight has arrived
//	    │                                   enforce = true
//
// Only a reply counts for what the peer says. WireGuard lets packets overtake each other within its window,
// and whoever can hold packets back may choose which: an old request could say anything that was true once. A
// reply is younger than the request that it answers.
type stance struct {
	mode     cluster.Mode
	since    time.Duration // when the mode came into force
	answered bool          // the peer has answered, now or before the agent's restart
	kernel   Kernel
	adopted  bool // an earlier agent had heard that the peer encrypts; holds until this one hears something
	released bool // observe mode: the peer has said, knowing that encryption ends, that it accepts clear packets

	heard bool          // the peer has said something
	said  Stance        // what it said last
	until time.Duration // when all has arrived that it sent before it encrypted
}

// newStance believes the kernel: an earlier agent had reasons to make it do so. What strict mode enforced had no
// reason in the peer.
func newStance(o Options) stance {
	return stance{
		mode:     o.Mode,
		since:    o.ModeSince,
		answered: o.Kernel.Sends,
		kernel:   o.Kernel,
		adopted:  o.Kernel.Enforces && o.KernelMode != cluster.ModeStrict,
	}
}

// setMode changes the mode. fresh says that the peer answers at the moment: after observe mode, in which nobody
// depended on it, encryption begins only towards such a peer.
func (s *stance) setMode(now time.Duration, mode cluster.Mode, fresh bool) {
	if mode == s.mode {
		return
	}
	if s.mode == cluster.ModeObserve && !s.kernel.Sends {
		s.answered = s.answered && fresh
	}
	s.mode, s.since, s.adopted, s.released = mode, now, false, false
}

// own returns what this node says of itself. In observe mode it takes back that it encrypts before it stops; and it
// says that it enforces from when it is to, until it does no longer.
func (s *stance) own(now time.Duration, epoch uint32) Stance {
	return Stance{
		Confirmed:  s.answered,
		Encrypting: s.kernel.Sends && s.mode != cluster.ModeObserve,
		Enforcing:  s.kernel.Enforces || s.enforce(now),
		Mode:       s.mode,
		Epoch:      epoch,
	}
}

// request takes notice of a peer's request. differs says that it is not what the peer said last, so that it is to be
// asked. outdated says that replies to what was asked before are not informed: they may be older. That
// the peer encrypts no longer keeps enforcement from beginning; it ends none.
func (s *stance) request(now time.Duration, said Stance) (differs, outdated bool) {
	differs = !s.heard || said != s.said
	if !said.Encrypting && !s.own(now, 0).Enforcing {
		s.said.Encrypting = false
	}
	return differs, differs || !said.Encrypting
}

// reply learns from the answer to a request. informed says that the request told what own says now, and that no
// request outdated it: else the peer may encrypt no longer, and count on having told so.
func (s *stance) reply(now time.Duration, informed bool, said Stance) {
	known := s.said.Encrypting || s.adopted
	said.Encrypting = said.Encrypting && (informed || known)
	if said.Encrypting && !known {
		s.until = now + inFlight
	}
	s.answered, s.heard, s.said, s.adopted = true, true, said, false
	if s.mode == cluster.ModeObserve && informed && !said.Enforcing {
		s.released = true
	}
}

// send reports whether the datapath is to encrypt towards the peer. Silence never takes it back: whoever can
// drop packets could otherwise switch encryption off, and a peer whose agent is dead still decrypts.
func (s *stance) send(now time.Duration) bool {
	if s.mode == cluster.ModeObserve {
		return s.kernel.Sends && !s.released && now < s.since+withdrawGrace
	}
	return s.answered
}

// enforce reports whether the datapath is to drop what comes from the peer in clear.
func (s *stance) enforce(now time.Duration) bool {
	switch {
	case s.mode == cluster.ModeObserve:
		return false
	case s.mode == cluster.ModeStrict && (s.kernel.Enforces || now >= s.since+strictGrace):
		return true
	case s.adopted:
		return true
	}
	return s.said.Encrypting && now >= s.until
}

// turns returns when send or enforce change next by time alone, after now; never if they do not.
func (s *stance) turns(now time.Duration) time.Duration {
	moments := []time.Duration{s.until}
	switch s.mode {
	case cluster.ModeObserve:
		moments = []time.Duration{s.since + withdrawGrace}
	case cluster.ModeStrict:
		moments = append(moments, s.since+strictGrace)
	}
	next := never
	for _, at := range moments {
		if at > now {
			next = min(next, at)
		}
	}
	return next
}
