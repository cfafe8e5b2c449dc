package plan

import (
	"time"

	"warren/internal/cluster"
)

// Traffic is what is known of a peer at one moment.
type Traffic struct {
	Sent, Received uint64 // bytes since the device has the peer
	// Answers says that the peer answers probes, or never did: who was never there is not stalled.
	Answers bool
}

// Cure is what to do about a tunnel that is stuck.
type Cure uint8

// The cures.
const (
	// NoCure: the peer is well, or has been treated lately.
	NoCure Cure = iota
	// RenewPeer: take the peer out of the device and put it back, so that it begins with a new handshake.
	RenewPeer
	// RecreateDevice: every peer is stalled, though each was renewed.
	RecreateDevice
)

const (
	stallTime     = 10 * time.Second
	firstRenewal  = 30 * time.Second // until the second one; it doubles
	lastRenewal   = 10 * time.Minute
	recreatePause = 10 * time.Minute
)

// Watchdog finds tunnels that are stuck: what is sent grows, nothing comes back, and probes are not
// answered.
//
//	sent grows, nothing back    renewed    renewed again           every peer is like this: device recreated
//	 ├────── stallTime ──────────┤── 30 s ──┤── 60 s, 2 min … ─►    at most every recreatePause
//
// A machine that is off looks the same. Renewing its peer costs one handshake that nobody answers, and a
// device is recreated only when no peer is left to disturb.
type Watchdog struct {
	peers     map[cluster.PublicKey]*patient
	recreated time.Time
}

type patient struct {
	last     Traffic
	since    time.Time // when it was last seen well
	renewed  time.Time
	renewals int
}

// NewWatchdog returns one that knows no peers.
func NewWatchdog() *Watchdog { return &Watchdog{peers: map[cluster.PublicKey]*patient{}} }

// Observe takes in what the peers look like now, and returns who needs what. RecreateDevice comes alone, for the
// zero key.
func (w *Watchdog) Observe(now time.Time, peers map[cluster.PublicKey]Traffic) map[cluster.PublicKey]Cure {
	cures, stuck := map[cluster.PublicKey]Cure{}, 0
	for key := range w.peers {
		if _, ok := peers[key]; !ok {
			delete(w.peers, key)
		}
	}
	for key, traffic := range peers {
		p := w.observe(key, now, traffic)
		if p.stalled(now) && p.renewals > 0 {
			stuck++
		}
		if p.due(now) {
			cures[key] = RenewPeer
			p.renewed, p.renewals = now, p.renewals+1
			p.last = Traffic{} // the device counts from 0 again
		}
	}
	if stuck > 0 && stuck == len(peers) && now.Sub(w.recreated) >= recreatePause && w.allRenewedBefore(now.Add(-stallTime)) {
		w.recreated = now
		return map[cluster.PublicKey]Cure{{}: RecreateDevice}
	}
	return cures
}

// Renewals returns how often the peer was renewed since it was last seen well.
func (w *Watchdog) Renewals(key cluster.PublicKey) int {
	if p, known := w.peers[key]; known {
		return p.renewals
	}
	return 0
}

func (w *Watchdog) observe(key cluster.PublicKey, now time.Time, traffic Traffic) *patient {
	p, known := w.peers[key]
	if !known {
		p = &patient{since: now}
		w.peers[key] = p
	}
	well := !known || traffic.Answers || traffic.Received != p.last.Received || traffic.Sent == p.last.Sent && p.renewals == 0
	if well {
		p.since, p.renewals = now, 0
	}
	p.last = traffic
	return p
}

func (w *Watchdog) allRenewedBefore(at time.Time) bool {
	for _, p := range w.peers {
		if p.renewed.After(at) {
			return false
		}
	}
	return true
}

func (p *patient) stalled(now time.Time) bool { return now.Sub(p.since) >= stallTime }

// due reports whether the peer is stalled and its last renewal has had its time.
func (p *patient) due(now time.Time) bool {
	if !p.stalled(now) {
		return false
	}
	return p.renewals == 0 || now.Sub(p.renewed) >= min(firstRenewal<<min(p.renewals-1, 10), lastRenewal)
}
