package probe

import (
	"fmt"
	"time"
)

// Phase is what is known of a peer's tunnel, a function of durations:
//
//	New        first request       first reply           3 requests missed      3 min without a reply
//	 │  unknown      │  configured      │  confirmed              │  stale                │  down
//	 ├───────────────┼──────────────────┼─────────────────────────┼───────────────────────┼────────────►
//	                 │                  ▲                         │                       │
//	                 │                  └───────── a reply ───────┴───────────────────────┤
//	                 └─────────────────────── 3 min without any reply ───────────────────►│
//
// It is for people. What the datapath does is in State.Send and State.Enforce, which no silence changes: a
// stale peer is still encrypted to.
type Phase uint8

// The phases.
const (
	Unknown    Phase = iota // not asked yet
	Configured              // asked, no answer yet
	Confirmed               // answers: both sides decrypt what the other sends
	Stale                   // has answered, and missed the last three requests or more
	Down                    // has not answered for three minutes
)

const (
	missedIsStale = 3
	silentIsDown  = 3 * time.Minute
)

var phaseNames = [...]string{"unknown", "configured", "confirmed", "stale", "down"}

// String returns the name that status shows.
func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

// MarshalText implements encoding.TextMarshaler.
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// life has the moments that the phase depends on.
type life struct {
	created   time.Duration
	asked     bool          // a request was sent
	first     time.Duration // when the first request was sent
	alive     bool          // the peer has answered, now or to an earlier agent
	confirmed time.Duration // when it began to answer without a break
	replied   time.Duration // when it answered last
	missed    int           // requests since then that nobody answered in time
	staleAt   time.Duration // when missed became missedIsStale
}

// newLife begins a peer; adopted says that it answered an earlier agent.
func newLife(now time.Duration, adopted bool) life {
	return life{created: now, alive: adopted, confirmed: now, replied: now}
}

func (l *life) request(now time.Duration) {
	if !l.asked {
		l.asked, l.first = true, now
	}
}

func (l *life) reply(now time.Duration) {
	if !l.alive || l.missed >= missedIsStale {
		l.confirmed = now
	}
	l.alive, l.missed = true, 0
	l.replied = max(l.replied, now)
}

func (l *life) miss(now time.Duration) {
	if l.missed++; l.missed == missedIsStale {
		l.staleAt = now
	}
}

// phase returns the phase and when it began.
func (l *life) phase(now time.Duration) (Phase, time.Duration) {
	switch {
	case !l.alive && !l.asked:
		return Unknown, l.created
	case !l.alive && now < l.first+silentIsDown:
		return Configured, l.first
	case !l.alive:
		return Down, l.first + silentIsDown
	case l.missed < missedIsStale:
		return Confirmed, l.confirmed
	case now < l.replied+silentIsDown:
		return Stale, l.staleAt
	}
	return Down, max(l.staleAt, l.replied+silentIsDown)
}

// turns returns when the phase becomes Down if nothing happens, after now; never if it does not.
func (l *life) turns(now time.Duration) time.Duration {
	at := l.first + silentIsDown
	if l.alive {
		at = l.replied + silentIsDown
	}
	if !l.asked || l.alive && l.missed < missedIsStale || at <= now {
		return never
	}
	return at
}
