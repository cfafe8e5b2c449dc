package datapath

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"warren/internal/datapath/model"
	"warren/internal/plan"
)

// apply applies what must not fail.
func apply(t testing.TB, d *Datapath, upserts []PrefixEntry, deletes []netip.Prefix) {
	t.Helper()
	if failed, err := d.Apply(upserts, deletes); err != nil || len(failed) > 0 {
		t.Fatalf("failed %v: %v", failed, err)
	}
}

func entriesOf(t testing.TB, d *Datapath) map[netip.Prefix]plan.Entry {
	t.Helper()
	entries, err := d.Entries()
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func asMap(entries []PrefixEntry) map[netip.Prefix]plan.Entry {
	all := map[netip.Prefix]plan.Entry{}
	for _, e := range entries {
		all[e.Prefix] = e.Entry
	}
	return all
}

func diffEntries(want, got map[netip.Prefix]plan.Entry) string {
	return cmp.Diff(want, got, cmp.Comparer(sameAddr), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }))
}

func TestEntriesComeBack(t *testing.T) {
	d := open(t, Options{MaxAddresses: 64, MaxPrefixes: 64})
	if got := entriesOf(t, d); len(got) != 0 {
		t.Errorf("new maps have %v", got)
	}
	apply(t, d, testEntries(), nil)
	want := asMap(testEntries())
	if diff := diffEntries(want, entriesOf(t, d)); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	gone := []netip.Prefix{netip.MustParsePrefix("10.0.0.2/32"), netip.MustParsePrefix("10.244.2.0/24"), netip.MustParsePrefix("192.0.2.0/24")}
	apply(t, d, nil, gone)
	apply(t, d, nil, gone) // what is not there is gone
	for _, prefix := range gone {
		delete(want, prefix)
	}
	if diff := diffEntries(want, entriesOf(t, d)); diff != "" {
		t.Errorf("entries after a removal (-want +got):\n%s", diff)
	}
}

func TestLookup(t *testing.T) {
	d := open(t, Options{MaxAddresses: 64, MaxPrefixes: 64})
	apply(t, d, testEntries(), nil)
	for _, text := range []string{"10.0.0.1", "fd00::2", "10.244.2.99", "10.244.2.98", "10.244.2.65", "10.244.2.80", "fd00:244:2::7", "192.0.2.1", "fd00::9", "::ffff:10.0.0.2"} {
		addr := netip.MustParseAddr(text)
		want, wantFound := lookupIn(testEntries())(addr.Unmap())
		got, found, err := d.Lookup(addr)
		if err != nil || found != wantFound || got != want {
			t.Errorf("%s: %+v %v %v, want %+v %v", addr, got, found, err, want, wantFound)
		}
	}
}

// TestRandomEntries: whatever is written, replaced and removed, in whatever order, what is there is
// what a map in Go would have.
func TestRandomEntries(t *testing.T) {
	d := open(t, Options{MaxAddresses: 4096, MaxPrefixes: 4096})
	rapid.Check(t, func(rt *rapid.T) {
		apply(t, d, nil, slices.Collect(maps.Keys(entriesOf(t, d))))
		want := map[netip.Prefix]plan.Entry{}
		pool := rapid.SliceOfN(rapid.Custom(anyPrefix), 1, 20).Draw(rt, "prefixes")
		for range rapid.IntRange(1, 5).Draw(rt, "rounds") {
			var upserts []PrefixEntry
			for range rapid.IntRange(0, 10).Draw(rt, "upserts") {
				prefix := rapid.SampledFrom(pool).Draw(rt, "prefix")
				upserts = append(upserts, PrefixEntry{Prefix: prefix, Entry: plan.Entry{Identity: rapid.Uint32().Draw(rt, "identity")}})
				want[prefix] = upserts[len(upserts)-1].Entry
			}
			deletes := rapid.SliceOf(rapid.SampledFrom(pool)).Draw(rt, "deletes")
			for _, prefix := range deletes {
				delete(want, prefix)
			}
			apply(t, d, upserts, deletes)
		}
		if diff := diffEntries(want, entriesOf(t, d)); diff != "" {
			rt.Fatalf("entries (-want +got):\n%s", diff)
		}
	})
}

func TestRefusedPrefixIsTheOnlyOneThatFails(t *testing.T) {
	d := open(t, Options{MaxAddresses: 64, MaxPrefixes: 64})
	bad := netip.MustParsePrefix("::/0")
	failed, err := d.Apply([]PrefixEntry{{Prefix: bad}, testEntries()[0]}, []netip.Prefix{bad})
	if diff := cmp.Diff([]netip.Prefix{bad}, failed, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" || err == nil {
		t.Errorf("failed (-want +got), error %v:\n%s", err, diff)
	}
	if diff := diffEntries(asMap(testEntries()[:1]), entriesOf(t, d)); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

// TestFullMap: entries that are in a full map stay and can be changed; what does not fit is named.
func TestFullMap(t *testing.T) {
	const size = 8
	tests := []struct {
		name, option string
		bits         int
	}{
		{"addresses", optionAddresses, 32},
		{"prefixes", optionPrefixes, 24},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := open(t, Options{MaxAddresses: size, MaxPrefixes: size})
			list := func(from, to int, identity uint32) (entries []PrefixEntry) {
				for i := from; i < to; i++ {
					prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 0}), test.bits)
					entries = append(entries, PrefixEntry{Prefix: prefix, Entry: plan.Entry{Identity: identity}})
				}
				return entries
			}
			apply(t, d, list(0, size, 1), nil)
			failed, err := d.Apply(slices.Concat(list(size, size+3, 2), list(0, size, 3)), nil)
			if !errors.Is(err, ErrMapFull) || !strings.Contains(fmt.Sprint(err), test.option) {
				t.Errorf("error %v, want ErrMapFull naming %s", err, test.option)
			}
			if len(failed) != 3 {
				t.Errorf("failed: %v, want the three that are new", failed)
			}
			if diff := diffEntries(asMap(list(0, size, 3)), entriesOf(t, d)); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
			apply(t, d, nil, []netip.Prefix{list(0, 1, 0)[0].Prefix})
			apply(t, d, list(size, size+1, 2), nil)
		})
	}
}

// TestEntriesUnderTraffic: while entries of peers and of this node are changed again and again, every
// packet meets a whole one. Were they replaced, the kernel would reuse the memory of the one for the
// other below the program's hands: up to one packet in ten thousand takes the peer for this node,
// or for nobody, and leaves in clear, depending on which entries share a bucket.
func TestEntriesUnderTraffic(t *testing.T) {
	changing := []string{"10.0.0.1/32", "10.0.0.2/32", "fd00::1/128", "fd00::2/128", "10.244.1.0/24", "10.244.2.0/24"}
	entries := slices.DeleteFunc(testEntries(), func(e PrefixEntry) bool { return !slices.Contains(changing, e.Prefix.String()) })
	for range 4 { // the hash has another seed in every map
		d := open(t, Options{MaxAddresses: 4, MaxPrefixes: 2})
		apply(t, d, entries, nil)
		configure(t, d, testConfig())
		stop := replaceAgainAndAgain(d, entries)
		for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); {
			runRepeatedly(t, d, v4(hostToHost))
			runRepeatedly(t, d, v4(podToPod))
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		counted := countersOf(t, d, toNetdev, Input{})
		t.Logf("%d packets", counted[model.ReasonRedirected].Packets)
		delete(counted, model.ReasonRedirected)
		if len(counted) != 0 {
			t.Errorf("packets met half an entry or none: %+v", counted)
		}
	}
}

// replaceAgainAndAgain writes each entry for itself until it is stopped.
func replaceAgainAndAgain(d *Datapath, entries []PrefixEntry) (stop func() error) {
	stopped, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			for i := range entries {
				select {
				case <-stopped:
					done <- nil
					return
				default:
				}
				if _, err := d.Apply(entries[i:i+1], nil); err != nil {
					done <- err
					return
				}
			}
		}
	}()
	return func() error {
		close(stopped)
		return <-done
	}
}

func runRepeatedly(t testing.TB, d *Datapath, in Input) {
	t.Helper()
	options := ebpf.RunOptions{Data: in.Frame, Repeat: 10_000}
	if _, err := probeOf(t, d, toNetdev, in).program.Run(&options); err != nil {
		t.Fatal(err)
	}
}

func TestOpenAdopts(t *testing.T) {
	dir := bpffs(t)
	first := open(t, Options{Dir: dir, MaxAddresses: 64, MaxPrefixes: 64})
	apply(t, first, testEntries(), nil)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := open(t, Options{Dir: dir, MaxAddresses: 64, MaxPrefixes: 64})
	if diff := diffEntries(asMap(testEntries()), entriesOf(t, second)); diff != "" {
		t.Errorf("entries after reopening (-want +got):\n%s", diff)
	}
}

func TestOpenRefuses(t *testing.T) {
	tests := []struct {
		name    string
		prepare func(t *testing.T, dir string)
		options Options
		want    error
		text    string
	}{
		{name: "too small for the addresses that there are", options: Options{MaxAddresses: 1, MaxPrefixes: 64}, want: ErrMapFull, text: optionAddresses},
		{name: "too small for the prefixes that there are", options: Options{MaxAddresses: 64, MaxPrefixes: 1}, want: ErrMapFull, text: optionPrefixes},
		{name: "maps of another layout", options: Options{MaxAddresses: 64, MaxPrefixes: 64}, want: ErrIncompatible, text: "maps-v9",
			prepare: func(t *testing.T, dir string) {
				if err := os.Mkdir(filepath.Join(dir, "maps-v9"), 0o700); err != nil {
					t.Fatal(err)
				}
			}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.options.Dir, test.options.Filters = bpffs(t), newTrafficControl(t)
			first := open(t, Options{Dir: test.options.Dir, MaxAddresses: 64, MaxPrefixes: 64})
			apply(t, first, testEntries(), nil)
			if test.prepare != nil {
				test.prepare(t, test.options.Dir)
			}
			_, err := Open(test.options)
			if !errors.Is(err, test.want) || !strings.Contains(fmt.Sprint(err), test.text) {
				t.Errorf("error %v, want %v naming %s", err, test.want, test.text)
			}
			if diff := diffEntries(asMap(testEntries()), entriesOf(t, first)); diff != "" {
				t.Errorf("entries after the refusal (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOpenResizes: another size keeps the entries and the attachments, and what is written afterwards
// reaches the attached programs.
func TestOpenResizes(t *testing.T) {
	for _, size := range []uint32{32, 128} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			dir := bpffs(t)
			first := open(t, Options{Dir: dir, MaxAddresses: 64, MaxPrefixes: 64})
			apply(t, first, testEntries(), nil)
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			for range 2 { // resized, and then adopted
				d := open(t, Options{Dir: dir, MaxAddresses: size, MaxPrefixes: size})
				if diff := diffEntries(asMap(testEntries()), entriesOf(t, d)); diff != "" {
					t.Errorf("entries after reopening (-want +got):\n%s", diff)
				}
				for _, name := range []string{mapExact, mapPrefix} {
					if got := d.maps[name].MaxEntries(); got != size {
						t.Errorf("%s holds %d entries, want %d", name, got, size)
					}
				}
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestOpenNeedsBPFFileSystem(t *testing.T) {
	needRoot(t)
	for _, dir := range []string{filepath.Join(t.TempDir(), "not", "there"), "relative", ""} {
		_, err := Open(Options{Dir: dir, Filters: newTrafficControl(t)})
		if err == nil || !strings.Contains(err.Error(), "BPF file system") && !strings.Contains(err.Error(), "absolute") {
			t.Errorf("folder %q: %v", dir, err)
		}
		if _, err := os.Stat(dir); dir != "" && err == nil {
			t.Errorf("folder %q was created", dir)
		}
	}
}

func TestConfigureRefuses(t *testing.T) {
	d := open(t, Options{MaxAddresses: 1, MaxPrefixes: 1})
	tests := []struct {
		name   string
		change func(*model.Config)
		text   string
	}{
		{"no mark: every packet would be WireGuard's", func(c *model.Config) { c.Mark = 0 }, "mark"},
		{"mark outside the mask", func(c *model.Config) { c.Mark = 0x30 }, "mark 0x30/0x10"},
		{"no port", func(c *model.Config) { c.Port = 0 }, "port"},
		{"unknown mode", func(c *model.Config) { c.Mode = 3 }, "mode(3)"},
		{"unknown oversize", func(c *model.Config) { c.Oversize = 3 }, "oversize(3)"},
		{"unknown ingress", func(c *model.Config) { c.Ingress = 2 }, "ingress(2)"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			config := testConfig()
			test.change(&config)
			if err := d.Configure(config); err == nil || !strings.Contains(err.Error(), test.text) {
				t.Errorf("error %v, want one about %q", err, test.text)
			}
		})
	}
}
