package probe

import "time"

const (
	// step is what WireGuard pads to: sizes in between arrive as the next one does.
	step = 16
	// smallest is what IPv6 needs at least (RFC 8200 §5).
	smallest = 1280
	// commonMTU is what a path has that is smaller than its ends, most of the time.
	commonMTU = 1500
	// searchAgain is how long a result holds by itself.
	searchAgain = 10 * time.Minute
	// searchPause comes between two searches that something gave cause for, and after one without result.
	searchPause = time.Minute

	// triesLost is how many probes of a size have to be lost, while small ones sent with them are answered,
	// for the size to be the reason; triesAtMost ends the attempts on a path that loses small ones too.
	triesLost   = 3
	triesAtMost = 8
)

// Path says which sizes are possible between this node and a peer.
type Path struct {
	// Largest inner size in bytes, from the MTU of the underlay device; rounded down to a multiple of 16, at
	// least Smallest. 0: no search.
	Largest int
	// Smallest inner size in bytes that is ever used; 0: 1280.
	Smallest int
	// Overhead in bytes of a packet in the tunnel, outer IP header included; 0: 60, as over IPv4.
	Overhead int
	// Size in bytes that an earlier agent found; 0: none did.
	Size int
}

func (p Path) withDefaults() Path {
	if p.Smallest == 0 {
		p.Smallest = smallest
	}
	if p.Overhead == 0 {
		p.Overhead = 60
	}
	p.Largest = max(floor(p.Largest), p.Smallest)
	p.Size = floor(min(p.Size, p.Largest))
	return p
}

func floor(size int) int { return size / step * step }

// search finds the largest inner size that arrives whole. Between low, which does, and high, which does not,
// it halves the distance, unless fragments tell the answer: then that is tried, and the next larger one.
//
//	low          candidates, every 16 bytes           high
//	 │    ·    ·    ·    ·    ·    ·    ·    ·    ·    │
//	 whole                                    in fragments, or lost three times
type search struct {
	Path
	narrow  bool // not even Smallest arrives whole
	running bool
	again   bool          // there was cause for another search while this one ran
	due     time.Duration // when the next search begins
	ended   time.Duration // when the last one ended

	fresh     bool   // nothing was sent in this search yet
	first     uint64 // the first request of this search or of the last one
	low, high int    // multiples of step; Smallest-step: nothing is known to arrive, Largest+step: nothing to fail
	hint      int    // a size to try before halving; 0: none
	try       trial
}

// trial is the size that is tried, and the last pair of probes, one of that size and a small one.
type trial struct {
	size  int
	tries int  // pairs
	lost  int  // those of them of which only the small one was answered
	asked bool // a pair is on its way
	until time.Duration
	small uint64 // number of the small one
	alive bool   // it was answered
}

func newSearch(now time.Duration, path Path) search {
	s := search{Path: path.withDefaults(), due: now}
	if path.Largest == 0 {
		s.due = never
	}
	return s
}

// next returns when the search has something to send or to decide; never while it has not.
func (s *search) next() time.Duration {
	switch {
	case s.running && s.try.asked:
		return s.try.until
	case s.running:
		return 0
	}
	return s.due
}

// tick returns the size of the probe that is due, 0 if none is.
func (s *search) tick(now time.Duration) int {
	if !s.running && now >= s.due {
		s.begin()
	}
	if s.running && s.try.asked && now >= s.try.until {
		s.timeout(now)
	}
	if s.running && !s.try.asked {
		return s.try.size
	}
	return 0
}

// setPath takes other bounds into account, and searches anew between them. A smaller largest size holds at once.
func (s *search) setPath(now time.Duration, path Path) {
	path.Size = s.Size
	if path.withDefaults() == s.Path {
		return
	}
	*s = newSearch(now, path)
}

// suspect searches again at the time given, or before; after a search that runs.
func (s *search) suspect(at time.Duration) {
	if s.due == never {
		return
	}
	s.again = s.running
	s.due = min(s.due, at)
}

func (s *search) begin() {
	s.running, s.fresh = true, true
	s.low, s.high, s.hint = s.Smallest-step, s.Largest+step, s.Size
	if s.Size == 0 || s.Size == s.Largest { // which is tried first in any case
		s.hint = floor(commonMTU - s.Overhead)
	}
	s.try = trial{size: s.Largest}
}

// sent takes notice of the pair of probes that tick asked for, by the number of the small one.
func (s *search) sent(small uint64, until time.Duration) {
	if s.fresh {
		s.fresh, s.first = false, small
	}
	s.try.tries++
	s.try.asked, s.try.alive, s.try.small, s.try.until = true, false, small, until
}

// reply takes notice of an answer to request number, and of the first fragment that it tells of.
func (s *search) reply(now time.Duration, number uint64, size, fragment int) {
	whole := fragment == 0 || fragment >= size+s.Overhead
	switch {
	case whole && size >= s.Smallest && number >= s.first && !s.fresh:
		s.passes(now, size)
	case !s.running:
		s.notice(fragment)
	case !s.try.asked:
	case number == s.try.small:
		s.try.alive = true
	case size == s.try.size:
		s.fails(now, max(floor(fragment-s.Overhead), s.Smallest))
	}
}

// passes notes that a size of this search arrived whole, in time or late. Late is as good: where processors are
// busy, answers are given up that were only slow, and then the size below which all seems lost is nonsense.
func (s *search) passes(now time.Duration, size int) {
	s.low = max(s.low, size)
	if size >= s.high {
		s.high, s.hint = s.Largest+step, 0
	}
	switch {
	case s.running && size >= s.try.size:
		s.advance(now)
	case !s.running && size > s.Size:
		s.Size, s.narrow = size, false
		s.suspect(now)
	}
}

// notice searches again when packets of the size found arrive in fragments: the path has become smaller. Larger
// packets always do, in larger fragments.
func (s *search) notice(fragment int) {
	if fragment > 0 && s.Size > s.Smallest && fragment < s.Size+s.Overhead {
		s.suspect(s.ended + searchPause)
	}
}

// timeout judges a pair of which the large probe was not answered.
func (s *search) timeout(now time.Duration) {
	s.try.asked = false
	if s.try.alive {
		s.try.lost++
	}
	switch {
	case s.try.lost >= triesLost, s.try.lost > 0 && s.try.tries >= triesAtMost:
		s.fails(now, s.hint)
	case s.try.tries >= triesAtMost: // the peer is silent, and the last result holds
		s.running, s.due = false, now+searchPause
	}
}

// fails notes that the size does not arrive whole, and what else is worth trying.
func (s *search) fails(now time.Duration, hint int) {
	s.high, s.hint = s.try.size, hint
	s.advance(now)
}

// advance chooses the next size, or ends the search.
func (s *search) advance(now time.Duration) {
	if s.low+step >= s.high {
		s.end(now)
		return
	}
	size := s.low + floor((s.high-s.low)/2)
	switch {
	case s.low < s.hint && s.hint < s.high:
		size = s.hint
	case s.low == s.hint: // it arrived: if the next one does not, this is all
		size, s.hint = s.low+step, 0
	}
	s.try = trial{size: size}
}

func (s *search) end(now time.Duration) {
	s.running, s.ended, s.due = false, now, now+searchAgain
	if s.again { // what was found first may be no longer true
		s.again, s.due = false, now
	}
	s.narrow = s.low < s.Smallest
	s.Size = max(s.low, s.Smallest)
}
