package probe

import "time"

// bucket lets an event pass every so often, and a burst of them after a rest.
type bucket struct {
	every time.Duration
	burst int
	full  time.Duration // when all of the burst is there again, if nothing passes
}

func newBucket(perSecond, burst int) bucket {
	return bucket{every: time.Second / time.Duration(perSecond), burst: burst}
}

// ready returns from when on the next event may pass; it may be in the past.
func (b *bucket) ready() time.Duration { return b.full - time.Duration(b.burst-1)*b.every }

// take counts events that pass now. More than there is room for are paid for later.
func (b *bucket) take(now time.Duration, events int) {
	b.full = max(b.full, now) + time.Duration(events)*b.every
}

// allow takes one event if it may pass.
func (b *bucket) allow(now time.Duration) bool {
	if now < b.ready() {
		return false
	}
	b.take(now, 1)
	return true
}
