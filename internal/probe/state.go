package probe

import "time"

// State is what follows for a peer from all that was asked and answered.
type State struct {
	Phase Phase
	// Since when it is in that phase.
	Since time.Duration

	// Send: the datapath is to encrypt towards the peer. It becomes true with a reply through the tunnel, and
	// false again only on the way to observe mode.
	Send bool
	// Enforce: the datapath is to drop what comes from the peer in clear. It becomes true a second after the
	// peer has said that it encrypts, or ten seconds after strict mode came into force.
	Enforce bool
	// Heard: the peer has said something, which is in Peer. After a restart of the agent it has not.
	Heard bool
	Peer  Stance

	// Replied is when it answered last; 0 if never, and when it was adopted if that was all.
	Replied time.Duration
	// RTT is the smoothed round-trip time, LastRTT that of the last reply; 0: no reply yet.
	RTT, LastRTT time.Duration
	// Lost of the last Requests that were answered or are out of time; at most 32.
	Lost, Requests int

	// Size is the largest packet in bytes that arrives whole through the tunnel; 0: not known yet, and the
	// largest that the device carries is the best guess.
	Size int
	// PathMTU is the same outside the tunnel: the largest encrypted packet seen whole, outer IP header included.
	PathMTU int
	// Narrow: not even the smallest size arrives whole. Size is that all the same, and packets leave in fragments
	// or get lost.
	Narrow bool
	// Searching: the size is being searched for; Size is the one before.
	Searching bool
}

// State returns the state as it is now; it changes nothing.
func (p *Peer) State(now time.Duration) State {
	s := State{
		Send:      p.stance.send(now),
		Enforce:   p.stance.enforce(now),
		Heard:     p.stance.heard,
		Peer:      p.stance.said,
		RTT:       p.requests.timer.smooth,
		LastRTT:   p.requests.timer.last,
		Size:      p.search.Size,
		Narrow:    p.search.narrow,
		Searching: p.search.running,
	}
	s.Phase, s.Since = p.life.phase(now)
	if p.life.alive {
		s.Replied = p.life.replied
	}
	s.Lost, s.Requests = p.requests.loss(now)
	if s.Size != 0 && !s.Narrow {
		s.PathMTU = s.Size + p.search.Overhead
	}
	return s
}
