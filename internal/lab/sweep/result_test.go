package sweep

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"warren/internal/lab/proof"
)

func TestResult(t *testing.T) {
	all := func(sizes ...int) map[int]bool {
		set := map[int]bool{}
		for _, size := range sizes {
			set[size] = true
		}
		return set
	}
	tests := []struct {
		name    string
		outcome outcome
		want    Result
	}{
		{name: "all delivered", outcome: outcome{tried: all(100, 1440, 1500), delivered: all(100, 1440, 1500)},
			want: Result{Delivered: Sizes{100, 1440, 1500}, OK: true}},
		{name: "refused, and the size that was advised is delivered",
			outcome: outcome{tried: all(100, 1400, 1440, 1500), delivered: all(100, 1400), told: map[int]int{1440: 1400, 1500: 1400}},
			want:    Result{Delivered: Sizes{100, 1400}, Told: []Told{{1400, Sizes{1440, 1500}}}, OK: true}},
		{name: "refused by the device and then by the path",
			outcome: outcome{tried: all(100, 1400, 1440, 1500), delivered: all(100, 1400), told: map[int]int{1440: 1400, 1500: 1440}},
			want:    Result{Delivered: Sizes{100, 1400}, Told: []Told{{1400, Sizes{1440}}, {1440, Sizes{1500}}}, OK: true}},
		{name: "refused, but the size that was advised is lost",
			outcome: outcome{tried: all(100, 1400, 1440, 1500), delivered: all(100), told: map[int]int{1440: 1400, 1500: 1400}},
			want:    Result{Delivered: Sizes{100}, Told: []Told{{1400, Sizes{1440, 1500}}}, Lost: Sizes{1400}, Problem: "lost 1400, and nobody was told"}},
		{name: "refused without a size that could be sent instead", outcome: outcome{tried: all(100, 1440, 1500), delivered: all(100, 1440), told: map[int]int{1500: 60}},
			want: Result{Delivered: Sizes{100, 1440}, Lost: Sizes{1500}, Problem: "lost 1500, and nobody was told"}},
		{name: "lost", outcome: outcome{tried: all(100, 1440, 1500), delivered: all(100)},
			want: Result{Delivered: Sizes{100}, Lost: Sizes{1440, 1500}, Problem: "lost 1440,1500, and nobody was told"}},
		{name: "given up", outcome: outcome{tried: all(100, 1440), delivered: all(100), failure: errors.New("stuck")},
			want: Result{Delivered: Sizes{100}, Lost: Sizes{1440}, Untried: Sizes{1500}, Problem: "lost 1440, the last error was: stuck; not tried after that: 1500"}},
		{name: "interrupted", outcome: outcome{tried: all(100, 1440), delivered: all(100, 1440)},
			want: Result{Delivered: Sizes{100, 1440}, Untried: Sizes{1500}, Problem: "not tried: 1500; and nobody was told"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := test.outcome.result(proof.Row{}, false, Sizes{100, 1440, 1500})
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Result{}, "Row")); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAdvised: what senders were told is tried once, and only what can be sent.
func TestAdvised(t *testing.T) {
	o := newOutcome()
	o.told = map[int]int{1500: 1400, 1501: 1400, 9000: 1500, 2000: 60}
	o.tried[1500] = true
	if diff := cmp.Diff(Sizes{1400}, o.advised()); diff != "" {
		t.Errorf("advised (-want +got):\n%s", diff)
	}
}

func TestBatchLength(t *testing.T) {
	small := make(Sizes, 100)
	for i := range small {
		small[i] = MinSize + i
	}
	tests := []struct {
		name  string
		sizes Sizes
		want  int
	}{
		{name: "a few", sizes: small[:3], want: 3},
		{name: "as many as there are in a batch", sizes: small[:batchCount], want: batchCount},
		{name: "more", sizes: small, want: batchCount},
		{name: "as many bytes as there are in a batch", sizes: Sizes{batchBytes / 2, batchBytes / 2}, want: 2},
		{name: "more bytes", sizes: Sizes{batchBytes / 2, batchBytes/2 + 1}, want: 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := batchLength(test.sizes); got != test.want {
				t.Errorf("batchLength = %d, want %d", got, test.want)
			}
		})
	}
}
