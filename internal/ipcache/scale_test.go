package ipcache_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"warren/internal/cluster"
	"warren/internal/identity"
	"warren/internal/ipcache"
)

// sizes are the numbers of nodes of the clusters that are measured: one node has 2 addresses, 2 pod
// CIDRs and 50 pods with facts of their own, 54 prefixes in all.
var sizes = []struct {
	name  string
	nodes int
}{{"1k", 19}, {"10k", 185}, {"100k", 1852}, {"270k", 5000}, {"300k", 5556}}

const podsPerNode = 50

// TestScale prints what a cluster of each size costs (go test -v -run Scale) and fails at three times
// what the largest cluster may cost, in three attempts: a busy machine shall not matter, a wrong
// algorithm shall. Times are those of the processor, collector included: what one core would need.
func TestScale(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector would be measured, not the cache")
	}
	t.Logf("%9s %10s %13s %11s %11s %11s %11s", "prefixes", "cold load", "heap/prefix", "change pod", "node", "pod CIDR", "remove pod")
	for _, size := range sizes {
		facts := clusterFacts(size.nodes)
		var problems []string
		for range 3 {
			m := measure(facts)
			t.Logf("%9d %7.0f ms %11.0f B %8.1f µs %8.1f µs %8.1f µs %8.1f µs", len(facts), 1e3*m.load.Seconds(), m.bytes,
				µs(m.changePod), µs(m.changeNode), µs(m.changeCIDR), µs(m.removePod))
			if problems = m.problems(); len(problems) == 0 {
				break
			}
		}
		for _, problem := range problems {
			t.Errorf("%d prefixes: %s", len(facts), problem)
		}
	}
}

// measurement is what a cluster costs; changes are medians.
type measurement struct {
	load                                         time.Duration
	bytes                                        float64
	changePod, changeNode, changeCIDR, removePod time.Duration
}

func measure(facts []cluster.Fact) measurement {
	var m measurement
	before := heap()
	start := processorTime()
	cache := ipcache.New()
	for _, f := range facts {
		cache.Upsert(f)
	}
	m.load = processorTime() - start
	m.bytes = float64(heap()-before) / float64(cache.Len())
	m.changePod = perChange(cache, pods(facts), change)
	m.changeNode = perChange(cache, nodeAddresses(facts), change)
	m.changeCIDR = perChange(cache, podCIDRs(facts), change)
	m.removePod = perChange(cache, pods(facts), remove)
	runtime.KeepAlive(facts)
	return m
}

// problems holds a measurement against the targets, which are those of the largest cluster: nothing may
// cost more in a smaller one.
func (m measurement) problems() []string {
	const slack = 3
	var problems []string
	if m.load > slack*700*time.Millisecond {
		problems = append(problems, fmt.Sprintf("cold load took %s", m.load))
	}
	if m.bytes > 320 { // heap is no matter of noise
		problems = append(problems, fmt.Sprintf("%.0f bytes of heap per prefix", m.bytes))
	}
	slowest := max(m.changePod, m.changeNode, m.changeCIDR, m.removePod)
	if slowest > slack*8*time.Microsecond {
		problems = append(problems, fmt.Sprintf("one change took %s", slowest))
	}
	return problems
}

// perChange makes at least 20,000 changes at random places and returns the median over batches of the time of one. Each batch is
// put back before the next one, so that a small cluster is measured as often as a large one.
func perChange(cache *ipcache.Cache, facts []cluster.Fact, change func(*ipcache.Cache, cluster.Fact, int) int) time.Duration {
	const changes = 20_000
	var times []time.Duration
	for made := 0; made < changes; made += min(len(facts), changes) {
		for batch := range slices.Chunk(arriving(facts, changes), 500) {
			deltas := 0
			start := processorTime()
			for _, f := range batch {
				deltas += change(cache, f, 1)
			}
			times = append(times, (processorTime()-start)/time.Duration(len(batch)))
			if deltas != len(batch) {
				panic(fmt.Sprintf("%d deltas of %d changes", deltas, len(batch)))
			}
			cache.Upsert(batch...)
		}
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// arriving returns at most n of the facts in random order, copied as a decoder would make them: what
// is measured is the cache finding its own memory, not the test finding the facts.
func arriving(facts []cluster.Fact, n int) []cluster.Fact {
	order := rand.New(rand.NewPCG(1, 2)).Perm(len(facts))
	var fresh []cluster.Fact
	for _, i := range order[:min(n, len(order))] {
		f := facts[i]
		f.Resource, f.Info.Owner.Name = strings.Clone(f.Resource), strings.Clone(f.Info.Owner.Name)
		fresh = append(fresh, f)
	}
	return fresh
}

// change gives a fact another key, a different one each round, and returns the number of deltas.
func change(cache *ipcache.Cache, f cluster.Fact, round int) int {
	f.Info.Pair.Key += cluster.KeyID(round)
	return len(cache.Upsert(f))
}

func remove(cache *ipcache.Cache, f cluster.Fact, _ int) int {
	return len(cache.Delete(f.Prefix, f.Source, f.Resource))
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // the second one frees what the first one finalised
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// processorTime returns what this process has used of all processors.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func µs(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// BenchmarkColdLoad loads a whole cluster: fact by fact, a node's record at a time, and at once.
func BenchmarkColdLoad(b *testing.B) {
	for _, size := range sizes {
		facts := clusterFacts(size.nodes)
		for _, at := range []struct {
			name string
			once int
		}{{"fact", 1}, {"record", 4 + podsPerNode}, {"all", len(facts)}} {
			b.Run(size.name+"/by_"+at.name, func(b *testing.B) {
				for b.Loop() {
					cache := ipcache.New()
					for i := 0; i < len(facts); i += at.once {
						cache.Upsert(facts[i:min(i+at.once, len(facts))]...)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(facts)), "ns/fact")
			})
		}
	}
}

// BenchmarkChange changes the key of one fact at a random place: a pod's, a node address's, or that of
// a pod CIDR, under which 50 pods have to be looked at.
func BenchmarkChange(b *testing.B) {
	for _, size := range sizes {
		cache, facts := load(size.nodes)
		for _, of := range []struct {
			name  string
			facts []cluster.Fact
		}{{"pod", pods(facts)}, {"node", nodeAddresses(facts)}, {"cidr", podCIDRs(facts)}} {
			b.Run(size.name+"/"+of.name, func(b *testing.B) {
				arriving := arriving(of.facts, len(of.facts))
				for i := 0; b.Loop(); i++ {
					change(cache, arriving[i%len(arriving)], 1+i/len(arriving))
				}
			})
		}
	}
}

// BenchmarkRemoveAdd removes one pod and adds it again.
func BenchmarkRemoveAdd(b *testing.B) {
	for _, size := range sizes {
		cache, facts := load(size.nodes)
		b.Run(size.name, func(b *testing.B) {
			arriving := arriving(facts, len(facts))
			for i := 0; b.Loop(); i++ {
				f := arriving[i%len(arriving)]
				cache.Delete(f.Prefix, f.Source, f.Resource)
				cache.Upsert(f)
			}
		})
	}
}

// BenchmarkHeartbeat writes a node's record again, younger and otherwise the same.
func BenchmarkHeartbeat(b *testing.B) {
	for _, size := range sizes {
		cache, facts := load(size.nodes)
		b.Run(size.name, func(b *testing.B) {
			record := facts[:4+podsPerNode]
			for i := 0; b.Loop(); i++ {
				for j := range record {
					record[j].Issued++
				}
				if deltas := cache.Replace(record[0].Source, record[0].Resource, record); len(deltas) != 0 {
					b.Fatal(deltas)
				}
			}
		})
	}
}

// BenchmarkLookup finds the longest match of a random pod.
func BenchmarkLookup(b *testing.B) {
	for _, size := range sizes {
		cache, facts := load(size.nodes)
		b.Run(size.name, func(b *testing.B) {
			arriving := arriving(facts, len(facts))
			for i := 0; b.Loop(); i++ {
				if _, _, ok := cache.Lookup(arriving[i%len(arriving)].Prefix.Addr()); !ok {
					b.Fatal("not found")
				}
			}
		})
	}
}

// BenchmarkAll reads the whole map in order.
func BenchmarkAll(b *testing.B) {
	for _, size := range sizes {
		cache, facts := load(size.nodes)
		b.Run(size.name, func(b *testing.B) {
			for b.Loop() {
				for range cache.All() {
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(facts)), "ns/entry")
		})
	}
}

func load(nodes int) (*ipcache.Cache, []cluster.Fact) {
	cache, facts := ipcache.New(), clusterFacts(nodes)
	cache.Upsert(facts...)
	return cache, facts
}

// clusterFacts returns what the records of that many nodes say, record by record.
func clusterFacts(nodes int) []cluster.Fact {
	var facts []cluster.Fact
	for i := range nodes {
		n := uint32(i)
		id := cluster.NodeID{Cluster: "default", Name: fmt.Sprintf("node-%d", i)}
		state := func(prefix netip.Prefix, flags cluster.Flags, labels ...string) {
			facts = append(facts, cluster.Fact{
				Prefix: prefix, Source: cluster.SourceCustomResource, Resource: "node/" + id.String(), Issued: 1,
				Info: cluster.Info{
					Labels: labels, Owner: id, Flags: flags,
					HasPair: true, Pair: cluster.Pair{Endpoint: v4(0xac100000 + n), Key: 1},
				},
			})
		}
		state(cluster.HostPrefix(v4(0xac100000+n)), cluster.FlagNode, identity.LabelRemoteNode)
		state(cluster.HostPrefix(v6(0xfd00, n<<8|1)), cluster.FlagNode, identity.LabelRemoteNode)
		state(netip.PrefixFrom(v4(0x0a000000+n<<8), 24), 0)
		state(netip.PrefixFrom(v6(0xfd01, n<<8), 120), 0)
		for pod := range uint32(podsPerNode) {
			state(cluster.HostPrefix(v4(0x0a000002+n<<8+pod)), 0)
		}
	}
	return facts
}

func nodeAddresses(facts []cluster.Fact) []cluster.Fact { return ofEachNode(facts, 0, 2) }
func podCIDRs(facts []cluster.Fact) []cluster.Fact      { return ofEachNode(facts, 2, 3) } // the ones with pods
func pods(facts []cluster.Fact) []cluster.Fact          { return ofEachNode(facts, 4, 4+podsPerNode) }

func ofEachNode(facts []cluster.Fact, from, to int) []cluster.Fact {
	var chosen []cluster.Fact
	for i := 0; i < len(facts); i += 4 + podsPerNode {
		chosen = append(chosen, facts[i+from:i+to]...)
	}
	return chosen
}

func v4(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, n)))
}

func v6(start uint16, end uint32) netip.Addr {
	var raw [16]byte
	binary.BigEndian.PutUint16(raw[:], start)
	binary.BigEndian.PutUint32(raw[12:], end)
	return netip.AddrFrom16(raw)
}
