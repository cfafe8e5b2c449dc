package probe

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"warren/internal/cluster"
)

// sized is what the situations of a path look at.
type sized struct {
	Size, PathMTU     int
	Narrow, Searching bool
}

func sizedOf(s State) sized { return sized{s.Size, s.PathMTU, s.Narrow, s.Searching} }

// trueSize is the largest multiple of 16 that the path carries whole, within the bounds of the options.
func trueSize(w *wire, path Path) int {
	size := path.Largest
	if w.mtu != 0 {
		size = min(size, (w.mtu-60)/16*16)
	}
	return max(size, 1280)
}

func TestPath(t *testing.T) {
	jumbo := Path{Largest: 8928}
	for _, test := range []struct {
		name   string
		path   Path
		mtu    int
		silent bool
		want   []int // sizes that are tried, repetitions left out
		result sized
	}{
		{"the device's own", Path{Largest: 1440}, 0, false, []int{1440}, sized{Size: 1440, PathMTU: 1500}},
		{"not a multiple of 16", Path{Largest: 1447}, 0, false, []int{1440}, sized{Size: 1440, PathMTU: 1500}},
		{"1400 in the middle", Path{Largest: 1440}, 1400, false, []int{1440, 1328, 1344}, sized{Size: 1328, PathMTU: 1388}},
		{"1400 in the middle, which drops", Path{Largest: 1440}, 1400, true, []int{1440, 1344, 1296, 1312, 1328}, sized{Size: 1328, PathMTU: 1388}},
		{"1500 between jumbo frames", jumbo, 1500, false, []int{8928, 1440, 1456}, sized{Size: 1440, PathMTU: 1500}},
		{"1500 between jumbo frames, which drops", jumbo, 1500, true, []int{8928, 1440, 1456}, sized{Size: 1440, PathMTU: 1500}},
		{"known from before", Path{Largest: 8928, Size: 4000}, 4060, true, []int{8928, 4000, 4016}, sized{Size: 4000, PathMTU: 4060}},
		{"Smallest and no more", Path{Largest: 1440}, 1340, false, []int{1440, 1280, 1296}, sized{Size: 1280, PathMTU: 1340}},
		{"less than Smallest", Path{Largest: 1440}, 1300, false, []int{1440, 1280}, sized{Size: 1280, Narrow: true}},
		{"less than Smallest, which drops", Path{Largest: 1440}, 1300, true, []int{1440, 1344, 1296, 1280}, sized{Size: 1280, Narrow: true}},
		{"the device carries Smallest only", Path{Largest: 1200}, 0, false, []int{1280}, sized{Size: 1280, PathMTU: 1340}},
		{"another Smallest", Path{Largest: 1440, Smallest: 576}, 1000, false, []int{1440, 928, 944}, sized{Size: 928, PathMTU: 988}},
		{"no search", Path{}, 1400, false, nil, sized{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWire(Options{Mode: cluster.ModePermissive, Path: test.path}, permissive())
			w.mtu, w.silent = test.mtu, test.silent
			w.nodes[0].peer.LargeLost(w.now) // or a known size is searched for some time later
			var tried []int
			w.lose = func(from, size int) bool {
				if from == 0 && size != MinSize && (len(tried) == 0 || tried[len(tried)-1] != size) {
					tried = append(tried, size)
				}
				return false
			}
			w.run(2 * time.Minute)
			if diff := cmp.Diff(test.want, tried); diff != "" {
				t.Errorf("sizes tried (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.result, sizedOf(w.state(0))); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

// What the search does over time, on a path that changes under it.
func TestPathChanges(t *testing.T) {
	options := Options{Mode: cluster.ModePermissive, Path: Path{Largest: 1440}}
	for _, test := range []struct {
		name  string
		steps []func(w *wire)
		want  []int // sizes after each step and 5 s
	}{
		{"smaller, and fragments tell", []func(w *wire){
			func(*wire) {},
			func(w *wire) { w.mtu = 1400 },
			func(w *wire) { w.run(searchPause); w.fragments(1, 1396, 20*time.Second); w.run(20 * time.Second) },
		}, []int{1440, 1440, 1328}},
		{"larger packets of others in fragments tell nothing", []func(w *wire){
			func(*wire) {},
			func(w *wire) {
				w.run(searchPause)
				w.mtu = 1400
				w.fragments(1, 1500, 20*time.Second)
				w.run(20 * time.Second)
			},
		}, []int{1440, 1440}},
		{"smaller, and the caller tells", []func(w *wire){
			func(*wire) {},
			func(w *wire) { w.mtu, w.silent = 1400, true },
			func(w *wire) { w.nodes[0].peer.LargeLost(w.now) },
		}, []int{1440, 1440, 1328}},
		{"smaller during a search that has found more", []func(w *wire){
			func(*wire) {},
			func(w *wire) {
				p := w.nodes[0].peer
				p.SetPath(w.now, Path{Largest: 8928})
				w.mtu = 8000
				for p.search.low < 1440 {
					w.run(latency)
				}
				w.mtu, w.silent = 1400, true
				p.LargeLost(w.now)
			},
			func(w *wire) { w.run(20 * time.Second) },
		}, []int{1440, 7936, 1328}},
		{"smaller, and nobody tells", []func(w *wire){
			func(*wire) {},
			func(w *wire) { w.mtu, w.silent = 1400, true },
			func(w *wire) { w.run(searchAgain) },
		}, []int{1440, 1440, 1328}},
		{"larger again", []func(w *wire){
			func(w *wire) { w.mtu = 1400 },
			func(w *wire) { w.mtu = 0; w.run(searchAgain) },
		}, []int{1328, 1440}},
		{"the device grows", []func(w *wire){
			func(*wire) {},
			func(w *wire) { w.nodes[0].peer.SetPath(w.now, Path{Largest: 8928}) },
		}, []int{1440, 8928}},
		{"the device shrinks", []func(w *wire){
			func(*wire) {},
			func(w *wire) {
				w.lose = func(_, size int) bool { return size != MinSize } // what the search finds comes later
				w.nodes[0].peer.SetPath(w.now, Path{Largest: 1344})
				w.run(-5 * time.Second)
			},
		}, []int{1440, 1344}},
		{"the peer falls silent: the result holds", []func(w *wire){
			func(*wire) {},
			func(w *wire) { w.nodes[1].dead = true; w.run(searchAgain) },
			func(w *wire) { w.mtu = 1400; w.nodes[1].dead = false; w.run(searchPause) },
		}, []int{1440, 1440, 1328}},
		{"the peer falls silent during a search: the result holds, and the search is made up for", []func(w *wire){
			func(*wire) {},
			func(w *wire) { w.nodes[1].dead = true; w.nodes[0].peer.LargeLost(w.now); w.run(20 * time.Second) },
			func(w *wire) { w.mtu = 1400; w.nodes[1].dead = false; w.run(searchPause + 10*time.Second) },
		}, []int{1440, 1440, 1328}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWire(options, permissive())
			var got []int
			for _, step := range test.steps {
				step(w)
				w.run(5 * time.Second)
				got = append(got, w.state(0).Size)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("sizes (-want +got):\n%s", diff)
			}
		})
	}
}

// largeProbes counts the large requests of the first node in a time.
func largeProbes(w *wire, d time.Duration) (count int) {
	w.lose = func(from, size int) bool {
		if from == 0 && size != MinSize {
			count++
		}
		return false
	}
	w.run(d)
	return count
}

// Where not even the smallest size arrives whole, fragments go on, and are no news.
func TestNarrowPathIsNotSearchedForItsFragments(t *testing.T) {
	w := newWire(Options{Mode: cluster.ModePermissive, Path: Path{Largest: 1440}}, permissive())
	w.mtu = 1300
	w.run(10 * time.Second)
	w.fragments(1, 1300, time.Hour)
	if got := largeProbes(w, 5*time.Minute); got != 0 {
		t.Errorf("%d large probes in five minutes after the first search, want none", got)
	}
}

// Fragments that no large probe meets give cause for one search in a minute.
func TestFragmentsDoNotKeepTheSearchGoing(t *testing.T) {
	w := newWire(Options{Mode: cluster.ModePermissive, Path: Path{Largest: 1440}}, permissive())
	w.run(10 * time.Second)
	searches := 0
	w.lose = func(from, size int) bool {
		switch {
		case from != 0:
		case size == MinSize:
			w.fragments(1, 1396, time.Hour)
		default:
			w.fragments(1, 0, 0)
			searches++
		}
		return false
	}
	if w.run(5 * time.Minute); searches < 3 || searches > 5 {
		t.Errorf("%d searches in five minutes, want one in each", searches)
	}
}

func TestNoSearchWhileThePeerIsSilent(t *testing.T) {
	w := newWire(Options{Mode: cluster.ModePermissive, Kernel: Kernel{Sends: true}, Path: Path{Largest: 1440}}, permissive())
	w.nodes[1].dead = true
	if got := largeProbes(w, time.Hour); got != 0 {
		t.Errorf("%d large probes to a peer that does not answer", got)
	}
}

// After a restart of the agent the sizes are known, and not all peers are searched at once.
func TestKnownSizesAreSearchedInTurn(t *testing.T) {
	early := 0
	for seed := range uint64(100) {
		w := newWire(Options{Mode: cluster.ModePermissive, Seed: seed, Path: Path{Largest: 1440, Size: 1328}}, permissive())
		if largeProbes(w, searchAgain/10) > 0 {
			early++
		}
		if got := w.state(0).Size; got != 1328 && got != 1440 {
			t.Errorf("size %d, want what was known or what was found", got)
		}
	}
	if early < 3 || early > 20 {
		t.Errorf("%d of 100 peers were searched in the first tenth of the time, want about 10", early)
	}
}

// The same bounds again must not begin a search: an agent that sets what it wants after every change would never rest.
func TestSamePathAgain(t *testing.T) {
	w := newWire(Options{Mode: cluster.ModePermissive, Path: Path{Largest: 1440}}, permissive())
	w.run(5 * time.Second)
	w.nodes[0].peer.SetPath(w.now, Path{Largest: 1445, Smallest: 1280, Overhead: 60})
	if s := w.state(0); s.Searching || w.nodes[0].peer.Next() <= w.now {
		t.Errorf("searching %t, next at %v, now it is %v", s.Searching, w.nodes[0].peer.Next(), w.now)
	}
}

// mostPairs bounds the probes until there is a result: of the sizes that halving can meet, the first, the hinted
// ones and the last, each is tried eight times at most; and it may begin again, when eight small probes were lost.
func mostPairs(path Path) int {
	sizes := 4
	for steps := (path.Largest-smallest)/step + 2; steps > 1; steps = (steps + 1) / 2 {
		sizes++
	}
	return 2 * sizes * triesAtMost
}

// For any path and up to 30 % loss, a search ends within a bounded number of probes, never above what the path
// carries; without loss exactly there. When the path changes, the next search follows.
func TestPropertySearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		path := Path{Largest: rapid.IntRange(1280, 9000).Draw(t, "largest")}
		seed := rapid.Uint64().Draw(t, "seed")
		w := newWire(Options{Mode: cluster.ModePermissive, Path: path, Seed: seed}, permissive())
		random := rand.New(rand.NewPCG(seed, 2))
		loss := rapid.SampledFrom([]float64{0, 0.1, 0.3}).Draw(t, "loss")
		pairs := 0
		w.lose = func(from, size int) bool {
			if size != MinSize {
				pairs++
			}
			return random.Float64() < loss
		}
		mtus := rapid.SliceOfN(rapid.IntRange(1340, 9100), 1, 4).Draw(t, "mtus")
		w.silent = rapid.Bool().Draw(t, "silent")
		for _, mtu := range mtus {
			w.mtu, pairs = mtu, 0
			w.nodes[0].peer.LargeLost(w.now)
			searchesOnce(t, w)
			got, want := w.state(0).Size, trueSize(w, path.withDefaults())
			switch {
			case pairs > mostPairs(path.withDefaults()):
				t.Fatalf("%d pairs of probes, at most %d expected", pairs, mostPairs(path.withDefaults()))
			case got > want, loss == 0 && got != want:
				t.Fatalf("MTU %d of %v: size %d, want %d", mtu, mtus, got, want)
			}
		}
	})
}

// searchesOnce lets time pass until a search has ended with a result.
func searchesOnce(t *rapid.T, w *wire) {
	before := w.nodes[0].peer.search.ended
	for range 600 {
		w.run(2 * time.Second) // fragments of the path as it was are forgotten then
		if w.nodes[0].peer.search.ended != before && !w.state(0).Searching {
			return
		}
	}
	t.Fatal("no search ended in twenty minutes")
}

// With loss a search may end below the truth; most of them do not, also where large packets vanish without a word.
func TestSearchUnderLossIsMostlyExact(t *testing.T) {
	var sizes []int
	for seed := range uint64(100) {
		w := newWire(Options{Mode: cluster.ModePermissive, Seed: seed, Path: Path{Largest: 1440}}, permissive())
		random := rand.New(rand.NewPCG(seed, 3))
		w.mtu, w.silent = 1400, true
		w.lose = func(int, int) bool { return random.Float64() < 0.05 }
		w.run(time.Minute)
		sizes = append(sizes, w.state(0).Size)
	}
	slices.Sort(sizes)
	if sizes[5] != 1328 || sizes[99] != 1328 {
		t.Errorf("sizes found at 5 %% loss, want 1328 of nearly all: %v", sizes)
	}
}
