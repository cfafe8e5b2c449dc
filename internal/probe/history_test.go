package probe

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestHistoryForgets(t *testing.T) {
	var h history
	if _, ok := h.answer(0, 0); ok {
		t.Error("an answer to no request")
	}
	first := h.add(0, MinSize)
	for range remembered - 1 {
		h.add(0, MinSize)
	}
	if _, ok := h.answer(0, first); !ok {
		t.Errorf("the answer to the oldest of %d requests is not known", remembered)
	}
	second := first + 1
	h.add(0, 1440)
	h.add(0, MinSize)
	if _, ok := h.answer(0, second); ok {
		t.Errorf("an answer to the oldest of %d requests counts for another", remembered+1)
	}
}

// Large probes may be lost or late for their size, which says nothing of the peer.
func TestLargeProbesCountForNeitherTimeNorLoss(t *testing.T) {
	var h history
	small, large := h.add(0, MinSize), h.add(0, 1440)
	h.add(0, 1440)
	h.answer(10*time.Millisecond, small)
	h.answer(time.Second, large)
	lost, decided := h.loss(time.Hour)
	if h.timer.last != 10*time.Millisecond || lost != 0 || decided != 1 {
		t.Errorf("round trip %v, lost %d of %d; want 10ms and none of 1", h.timer.last, lost, decided)
	}
}

// The second case is RFC 6298 §2 by hand.
func TestTimer(t *testing.T) {
	ms := time.Millisecond
	for _, test := range []struct {
		name    string
		samples []time.Duration
		want    timer
		timeout time.Duration
	}{
		{"none", nil, timer{}, time.Second},
		{"three", []time.Duration{100 * ms, 180 * ms, 100 * ms}, timer{last: 100 * ms, smooth: 108750 * time.Microsecond, spread: 45625 * time.Microsecond}, 300 * ms},
		{"far away", []time.Duration{400 * ms}, timer{last: 400 * ms, smooth: 400 * ms, spread: 200 * ms}, 1200 * ms},
		{"farther than anybody waits", []time.Duration{5 * time.Second}, timer{last: 5 * time.Second, smooth: 5 * time.Second, spread: 2500 * ms}, maxTimeout},
		{"no time at all", []time.Duration{0}, timer{last: 1, smooth: 1}, minTimeout},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got timer
			for _, sample := range test.samples {
				got.sample(sample)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(timer{})); diff != "" {
				t.Errorf("timer (-want +got):\n%s", diff)
			}
			if got.timeout() != test.timeout {
				t.Errorf("timeout %v, want %v", got.timeout(), test.timeout)
			}
		})
	}
}
