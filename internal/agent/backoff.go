package agent

import "time"

const (
	firstPause   = 100 * time.Millisecond
	longestPause = 10 * time.Second
)

// backoff says when to try again after failures in a row. The zero value has seen none.
type backoff struct{ failures int }

// fail counts a failure and returns the pause before the next try: 0.1 s, doubling to 10 s.
func (b *backoff) fail() time.Duration {
	pause := firstPause << min(b.failures, 10)
	b.failures++
	return min(pause, longestPause)
}

// reset forgets the failures.
func (b *backoff) reset() { b.failures = 0 }
