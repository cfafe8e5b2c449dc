package kube

import (
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"warren/internal/discovery"
	"warren/internal/lab/control/controltest"
	"warren/test/admin"
)

// TestDiscoveryScale: a thousand WarrenNodes, of which twenty change every second. What is measured is in the log; the
// limits are wide, since the machine may have other work.
func TestDiscoveryScale(t *testing.T) {
	const nodes, updates, rate = 1000, 200, 20
	plane := controltest.Own(t)
	install(t, plane)
	a := administratorOf(t, plane)
	a.addNode("many-0000", "10.7.0.0", "100.64.0.0/24")
	began := time.Now()
	if err := a.MakeMany(1, nodes); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d WarrenNodes made in %v", nodes-1, time.Since(began).Round(time.Millisecond))

	before := heap()
	gate := openGate(t, a)
	var mu sync.Mutex
	sent, lags := map[string]time.Time{}, []time.Duration{}
	began = time.Now()
	f := follow(t, gate.config, "many-0000", func(e discovery.Event) {
		mu.Lock()
		defer mu.Unlock()
		if at, ok := sent[e.Node.Version]; ok && e.Kind == discovery.Upsert {
			lags = append(lags, time.Since(at))
		}
	})
	f.untilSynced()
	took := time.Since(began)
	t.Logf("synced in %v, %s; heap %d KiB more", took.Round(time.Millisecond), gate.summary(), (heap()-before)>>10)
	if took > patience/2 {
		t.Errorf("synced after %v", took)
	}
	f.untilPublished(admin.Many(0))
	f.Report(discovery.Report{Mode: "permissive", Version: "v0.1.0", Peers: 2, Confirmed: 2, Ready: true})
	eventually(t, patience, "the status is there", func() bool {
		return a.do(http.MethodGet, allRecords+"/many-0000", nil)["status"] != nil
	})
	f.show(func() {
		if len(f.records) != nodes {
			t.Errorf("%d records", len(f.records))
		}
	})

	gate.reset()
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	for i := range updates {
		<-tick.C
		node := admin.Many(1 + i*7%(nodes-1))
		node.Version = fmt.Sprintf("v1.0.%d", i)
		mu.Lock()
		sent[node.Version] = time.Now()
		mu.Unlock()
		a.do(http.MethodPatch, allRecords+"/"+node.ID.Name, fields{"spec": fields{"version": node.Version}})
	}
	eventually(t, patience, "every update is heard of", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(lags) == updates
	})
	slices.Sort(lags)
	t.Logf("%d updates at %d/s: lag median %v, 99th %v, most %v; %s", updates, rate, lags[updates/2].Round(time.Millisecond),
		lags[updates*99/100].Round(time.Millisecond), lags[updates-1].Round(time.Millisecond), gate.summary())
	if lags[updates-1] > patience/4 {
		t.Errorf("a lag of %v", lags[updates-1])
	}

	gate.reset()
	time.Sleep(10 * time.Second)
	t.Logf("idle for 10 s: %s", gate.summary())
	if n := gate.writes(); n != 0 {
		t.Errorf("%d writes when idle", n)
	}
}

// heap is what is in use, in bytes.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func (g *gate) reset() {
	g.set(func() { g.counts, g.bytes = map[string]int{}, 0 })
}

// summary is what went through since it was reset.
func (g *gate) summary() (text string) {
	g.set(func() {
		text = "requests"
		for _, what := range slices.Sorted(maps.Keys(g.counts)) {
			text += fmt.Sprintf(" %s=%d", what, g.counts[what])
		}
		text += fmt.Sprintf(", %d KiB received", g.bytes>>10)
	})
	return text
}
