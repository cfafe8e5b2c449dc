package probe

import "time"

const (
	// remembered is how many requests a late reply can still belong to, and how many count for the loss.
	remembered = 32
	// firstTimeout is how long a reply may take before any was timed (RFC 6298 §2.1).
	firstTimeout = time.Second
	// minTimeout leaves a busy machine time to answer, maxTimeout keeps the search for a size moving.
	minTimeout = 300 * time.Millisecond
	maxTimeout = 3 * time.Second
)

// request is one that was sent.
type request struct {
	at       time.Duration
	size     int
	answered bool
}

// history has the last requests to a peer, numbered from 0, and what their replies say of the path.
type history struct {
	ring  [remembered]request
	count uint64 // requests so far
	timer timer
}

// add remembers a request and returns its number.
func (h *history) add(now time.Duration, size int) uint64 {
	number := h.count
	h.ring[number%remembered] = request{at: now, size: size}
	h.count++
	return number
}

// last returns when the last request was sent, if one was.
func (h *history) last() (time.Duration, bool) {
	return h.ring[(h.count-1)%remembered].at, h.count > 0
}

// answer returns the request of that number when this is the first reply to it, and it is not forgotten.
func (h *history) answer(now time.Duration, number uint64) (request, bool) {
	if number >= h.count || h.count-number > remembered {
		return request{}, false
	}
	r := &h.ring[number%remembered]
	if r.answered {
		return request{}, false
	}
	r.answered = true
	if r.size == MinSize { // large ones take longer, and may wait for fragments
		h.timer.sample(max(now-r.at, 0))
	}
	return *r, true
}

// loss returns how many of the remembered small requests were lost, and how many are decided: answered, or
// out of time. Large ones may be lost for their size.
func (h *history) loss(now time.Duration) (lost, decided int) {
	for _, r := range h.ring[:min(h.count, remembered)] {
		switch {
		case r.size != MinSize:
		case r.answered:
			decided++
		case now >= r.at+h.timer.timeout():
			lost, decided = lost+1, decided+1
		}
	}
	return lost, decided
}

// timer estimates the round-trip time as TCP does (RFC 6298 §2).
type timer struct {
	last, smooth, spread time.Duration // 0: no sample yet
}

func (t *timer) sample(rtt time.Duration) {
	rtt = max(rtt, 1) // 0 is "none"
	if t.last == 0 {
		t.smooth, t.spread = rtt, rtt/2
	} else {
		t.spread += ((t.smooth - rtt).Abs() - t.spread) / 4
		t.smooth += (rtt - t.smooth) / 8
	}
	t.last = rtt
}

// timeout returns how long after a request its reply is given up. One that comes later still counts.
func (t *timer) timeout() time.Duration {
	if t.last == 0 {
		return firstTimeout
	}
	return min(max(t.smooth+4*t.spread, minTimeout), maxTimeout)
}
