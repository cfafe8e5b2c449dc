package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warren/internal/cluster"
)

// TestWatchdog plays what a device shows, one reading every five seconds. A reading is what was sent and
// received in all by each of the two peers, and whether it answers.
func TestWatchdog(t *testing.T) {
	type reading [2]Traffic
	well := func(i uint64) Traffic { return Traffic{Sent: i * 100, Received: i * 100, Answers: true} }
	stuck := func(i uint64) Traffic { return Traffic{Sent: i * 100} }
	idle := Traffic{Sent: 5}
	off := func(i uint64) Traffic { return Traffic{Sent: i * 148, Answers: true} } // it never answered
	for _, test := range []struct {
		name  string
		at    func(i uint64) reading
		first map[int]int // after so many readings, peer 0 was renewed so often
		// recreated is how often the device was, in all 60 readings.
		recreated int
	}{
		{name: "all is well", at: func(i uint64) reading { return reading{well(i), well(i)} }, first: map[int]int{60: 0}},
		{name: "nothing is sent, and probes are not answered", at: func(uint64) reading { return reading{idle, well(1)} }, first: map[int]int{60: 0}},
		{name: "it receives, but does not answer probes: its agent is gone",
			at: func(i uint64) reading { return reading{{Sent: i, Received: i}, well(i)} }, first: map[int]int{60: 0}},
		{name: "a peer that never answered", at: func(i uint64) reading { return reading{off(i), well(i)} }, first: map[int]int{60: 0}},
		{name: "one is stuck: renewed after 10 s, 30 s later, a minute later, …",
			at: func(i uint64) reading { return reading{stuck(i), well(i)} }, first: map[int]int{2: 0, 3: 1, 8: 1, 9: 2, 20: 2, 21: 3, 60: 4}},
		{name: "what it had received before counts from 0 again once it was renewed", first: map[int]int{6: 0, 7: 1, 12: 1, 13: 2},
			at: func(i uint64) reading {
				if i < 7 {
					return reading{{Sent: i, Received: 500, Answers: i < 5}, well(i)}
				}
				return reading{stuck(i), well(i)}
			}},
		{name: "it recovers and is stuck again", first: map[int]int{3: 1, 10: 1, 13: 2},
			at: func(i uint64) reading {
				if i >= 5 && i <= 9 {
					return reading{well(i), well(i)}
				}
				return reading{stuck(i), well(i)}
			}},
		{name: "all are stuck: the device is recreated, and not again soon",
			at: func(i uint64) reading { return reading{stuck(i), stuck(i)} }, recreated: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, now, recreated := NewWatchdog(), time.Unix(0, 0).Add(24*time.Hour), 0
			renewed := map[int]int{}
			total := 0
			for i := range 60 {
				r := test.at(uint64(i))
				cures := w.Observe(now, map[cluster.PublicKey]Traffic{publicKey(1): r[0], publicKey(2): r[1]})
				if cures[publicKey(1)] == RenewPeer {
					total++
				}
				if cures[cluster.PublicKey{}] == RecreateDevice {
					recreated++
				}
				if _, asked := test.first[i+1]; asked {
					renewed[i+1] = total
				}
				now = now.Add(5 * time.Second)
			}
			if diff := cmp.Diff(test.first, renewed); test.first != nil && diff != "" {
				t.Errorf("renewals of peer 0 by reading (-want +got):\n%s", diff)
			}
			if recreated != test.recreated {
				t.Errorf("the device was recreated %d times, want %d", recreated, test.recreated)
			}
		})
	}
}

func TestWatchdogForgetsPeersThatAreGone(t *testing.T) {
	w := NewWatchdog()
	w.Observe(time.Unix(0, 0), map[cluster.PublicKey]Traffic{publicKey(1): {}})
	w.Observe(time.Unix(5, 0), nil)
	if len(w.peers) != 0 {
		t.Errorf("%d peers are remembered", len(w.peers))
	}
}
