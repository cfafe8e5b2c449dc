package datapath

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"warren/internal/cluster"
	"warren/internal/datapath/model"
	"warren/internal/plan"
)

// filled opens a datapath that knows the test's cluster and so many more single addresses
// (in 11.0.0.0/8) and prefixes (/28 in 12.0.0.0/6), all of a peer.
func filled(b *testing.B, size int) *Datapath {
	b.Helper()
	d := open(b, Options{MaxAddresses: 1 << 19, MaxPrefixes: 1 << 19})
	apply(b, d, append(testEntries(), manyEntries(size)...), nil)
	return d
}

func manyEntries(size int) []PrefixEntry {
	entry := plan.Entry{Identity: 6, Endpoint: netip.MustParseAddr("10.0.0.2"), Key: 1, HasPair: true, Send: true}
	entries := make([]PrefixEntry, 0, 2*size)
	for i := range size {
		exact := netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)})
		start := uint32(12<<24) + uint32(i)<<4
		prefix := netip.AddrFrom4([4]byte{byte(start >> 24), byte(start >> 16), byte(start >> 8), byte(start)})
		entries = append(entries,
			PrefixEntry{Prefix: cluster.HostPrefix(exact), Entry: entry},
			PrefixEntry{Prefix: netip.PrefixFrom(prefix, 28), Entry: entry})
	}
	return entries
}

// BenchmarkToNetdev is what the program costs per packet, in the kernel, without what follows a
// verdict. The maps have as many entries as the name says of either kind.
func BenchmarkToNetdev(b *testing.B) {
	to := func(dst string) []byte {
		return ethernet(typeIPv4, ipv4{src: "10.0.0.1", dst: dst, protocol: protoTCP}.wrap(tcp(1, 2)))
	}
	packets := []struct {
		name  string
		frame []byte
	}{
		{"ARP", arp},
		{"world", to("192.0.2.1")},
		{"world-UDP", ethernet(typeIPv4, udpTo("10.0.0.1", "192.0.2.1", 1, 53, "a question of a name"))},
		{"peer-by-address", to("11.0.3.1")},
		{"peer-by-prefix", to("12.0.3.1")},
		{"peer-IPv6", ethernet(typeIPv6, ipv6{src: "fd00::1", dst: "fd00::2", next: protoTCP}.wrap(tcp(1, 2)))},
	}
	for _, size := range []int{1_000, 300_000} {
		d := filled(b, size)
		configure(b, d, testConfig())
		program := d.programs[variant{program: toNetdev}]
		for _, packet := range packets {
			b.Run(fmt.Sprintf("%s/%d", packet.name, size), func(b *testing.B) {
				_, perPacket, err := program.Benchmark(packet.frame, b.N, b.ResetTimer)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(perPacket.Nanoseconds()), "ns/packet")
			})
		}
	}
}

// BenchmarkToNetdevTooLarge is what a packet costs that does not fit: one that is given to the WireGuard device
// all the same, and one that is made an error.
func BenchmarkToNetdevTooLarge(b *testing.B) {
	for _, packet := range []struct {
		name  string
		frame []byte
	}{
		{"IPv4", ethernet(typeIPv4, narrow4(1500))},
		{"IPv6", ethernet(typeIPv6, narrow6(1500))},
	} {
		for _, oversize := range []model.Oversize{model.OversizeFragment, model.OversizeICMP} {
			b.Run(packet.name+"/"+oversize.String(), func(b *testing.B) {
				d := filled(b, 1000)
				config := testConfig()
				config.Oversize = oversize
				configure(b, d, config)
				var total time.Duration
				for range b.N {
					empty(b, d.maps[mapTold])
					total += runOnce(b, d.programs[variant{program: toNetdev}], packet.frame)
				}
				b.ReportMetric(float64(total.Nanoseconds())/float64(b.N), "ns/packet")
			})
		}
	}
}

// runOnce: a packet that was made an error is another one. The kernel's clock is read around it, which
// costs some 20 ns.
func runOnce(b *testing.B, program *ebpf.Program, frame []byte) time.Duration {
	b.Helper()
	returned, duration, err := program.Benchmark(frame, 1, func() {})
	if err != nil || returned != actRedirect {
		b.Fatalf("returned %d: %v", returned, err)
	}
	return duration
}

// BenchmarkApply writes the entries of the largest cluster that Warren is made for, into empty maps.
func BenchmarkApply(b *testing.B) {
	const size = 135_000 // of either kind
	entries := manyEntries(size)
	deletes := make([]netip.Prefix, len(entries))
	for i, e := range entries {
		deletes[i] = e.Prefix
	}
	d := open(b, Options{MaxAddresses: 1 << 19, MaxPrefixes: 1 << 19})
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			apply(b, d, entries, nil)
			b.StopTimer()
			apply(b, d, nil, deletes)
			b.StartTimer()
		}
		b.ReportMetric(float64(len(entries)), "entries/op")
	})
	b.Run("read", func(b *testing.B) {
		apply(b, d, entries, nil)
		for b.Loop() {
			if got := len(entriesOf(b, d)); got != len(entries) {
				b.Fatalf("%d entries", got)
			}
		}
	})
}
