package agent

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"warren/internal/api"
	"warren/internal/cluster"
	"warren/internal/datapath"
	"warren/internal/datapath/model"
	"warren/internal/plan"
)

// constants configure programs as an agent does whose tunnel device has index 1: redirected packets of
// BPF_PROG_RUN go nowhere.
var constants = model.Config{Mark: 0x10, MarkMask: 0x10, Port: cluster.DefaultPort, Tunnels: [plan.Slots]uint32{1}, PrimaryUnderlay: 1, Mode: cluster.ModePermissive}

// openDatapath opens a datapath on a BPF file system of the test's own.
func openDatapath(t *testing.T) *datapath.Datapath {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root")
		}
		t.Skip("needs root: loads eBPF programs")
	}
	root := t.TempDir()
	if err := unix.Mount("bpf", root, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	data, err := datapath.Open(datapath.Options{Dir: filepath.Join(root, "warren"), MaxAddresses: 256, MaxPrefixes: 256})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = data.Close() })
	if err := data.Configure(constants); err != nil {
		t.Fatal(err)
	}
	return data
}

// follower keeps a kernel's maps as a world wants them, by changes alone.
type follower struct {
	world *plan.World
	have  plan.State
	data  *datapath.Datapath
}

func (f *follower) apply(changes ...plan.Change) error {
	f.world.Apply(changes...)
	scope := f.world.Changed()
	ops := plan.Diff(f.world.WantEntries(scope), scope.Of(f.have), plan.Options{Prune: true})
	f.have.Apply(ops)
	_, err := f.data.Apply(ops.SetEntries, ops.DeleteEntries)
	return err
}

// anyNews draws a change among few prefixes and sources, so that they meet.
func anyNews(t *rapid.T) plan.Change {
	name := rapid.SampledFrom([]string{"n2", "n3", "n4"}).Draw(t, "node")
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		id := cluster.NodeID{Cluster: cluster.DefaultCluster, Name: name}
		return plan.Change{Delete: &id}
	case 1:
		return plan.Change{Statement: anyStatement(t)}
	}
	node := record(name, "10.0.0."+name[1:], name[1])
	node.Keys[0].Epoch = uint32(rapid.IntRange(1, 2).Draw(t, "epoch"))
	for _, prefix := range prefixes {
		if rapid.Bool().Draw(t, prefix) {
			node.Prefixes = append(node.Prefixes, netip.MustParsePrefix(prefix))
		}
	}
	return plan.Change{Upsert: &node}
}

// prefixes are nested, in both families, and some are single addresses.
var prefixes = []string{"10.42.0.0/16", "10.42.1.0/24", "10.42.1.7/32", "10.0.0.0/24", "fd42::/48", "fd42::/64", "fd42::7/128"}

func anyStatement(t *rapid.T) *plan.Statement {
	statement := &plan.Statement{Source: cluster.SourceFile, Resource: "file/config"}
	if rapid.Bool().Draw(t, "API servers") {
		servers := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.2:6443"), netip.MustParseAddrPort("192.0.2.1:6443")}
		return &plan.Statement{
			Source: cluster.SourceKubeAPIServer, Resource: plan.APIServers,
			Facts: plan.APIServerFacts(servers[:rapid.IntRange(0, 2).Draw(t, "servers")]),
		}
	}
	for _, prefix := range prefixes {
		switch rapid.IntRange(0, 4).Draw(t, "fact about "+prefix) {
		case 0: // never encrypted
			statement.Facts = append(statement.Facts, cluster.Fact{Prefix: netip.MustParsePrefix(prefix), Info: cluster.Info{HasPair: true}})
		case 1:
			statement.Facts = append(statement.Facts, cluster.Fact{Prefix: netip.MustParsePrefix(prefix), Info: cluster.Info{Labels: []string{"site:b"}}})
		}
	}
	return statement
}

// TestFactsThroughTheKernel: whatever the sources say, in whatever order, the loaded program does with a
// packet what the model does with the facts.
func TestFactsThroughTheKernel(t *testing.T) {
	data := openDatapath(t)
	pairs := [][2]string{
		{"10.0.0.1", "10.0.0.2"}, {"10.0.0.1", "10.0.0.9"}, {"10.41.0.5", "10.42.1.7"}, {"10.41.0.5", "10.42.1.8"}, {"10.41.0.5", "10.42.9.9"},
		{"10.42.1.7", "10.41.0.5"}, {"10.42.1.7", "10.0.0.3"}, {"192.0.2.1", "10.42.1.7"}, {"10.0.0.1", "192.0.2.1"},
		{"fd41::5", "fd42::7"}, {"fd41::5", "fd42::8"}, {"fd42::7", "fd41::5"},
	}
	rapid.Check(t, func(t *rapid.T) {
		f := follower{world: plan.NewWorld(cluster.SourceDirectory, false), have: plan.NewState(), data: data}
		defer func() { // the next round begins with empty maps
			if _, err := data.Apply(nil, keys(f.have.Entries)); err != nil {
				t.Fatal(err)
			}
		}()
		self := record("n1", "10.0.0.1", 1)
		self.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.41.0.0/16"), netip.MustParsePrefix("fd41::/64")}
		if err := f.apply(plan.Change{Self: &self}); err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			if err := f.apply(anyNews(t)); err != nil {
				t.Fatal(err)
			}
			for _, pair := range pairs {
				if err := f.compare(pair[0], pair[1]); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// compare runs one packet through the model and the kernel.
func (f *follower) compare(src, dst string) error {
	frame := packetFor(api.Question{Source: netip.MustParseAddr(src), Destination: netip.MustParseAddr(dst), Protocol: "udp", Port: 53})
	want := model.ToNetdev(frame, model.Meta{}, constants, model.World{Lookup: f.world.Lookup})
	got, err := f.data.Run(model.ProgramToNetdev, datapath.Input{Frame: frame})
	if err != nil {
		return err
	}
	if got.Verdict != want.Verdict || got.Reason != want.Reason {
		return fmt.Errorf("%s to %s: the kernel says %v, %v; the facts say %v, %v", src, dst, got.Verdict, got.Reason, want.Verdict, want.Reason)
	}
	return nil
}

func keys(entries map[netip.Prefix]plan.Entry) []netip.Prefix {
	var list []netip.Prefix
	for prefix := range entries {
		list = append(list, prefix)
	}
	return list
}

// TestLiveAddressIsNeverMissing runs packets without pause while what covers their destination changes:
// from its own entry to prefixes of every length and back, and from node to node. What has a pair before
// and after each change is encrypted at every instant.
func TestLiveAddressIsNeverMissing(t *testing.T) {
	data := openDatapath(t)
	f := follower{world: plan.NewWorld(cluster.SourceDirectory, false), have: plan.NewState(), data: data}
	self := record("n1", "10.0.0.1", 1)
	n2, n3 := record("n2", "10.0.0.2", 2), record("n3", "10.0.0.3", 3)
	cover := func(node cluster.Node, prefix string) plan.Change {
		node.Prefixes = []netip.Prefix{netip.MustParsePrefix(prefix)}
		return plan.Change{Upsert: &node}
	}
	confirmed := plan.Change{Paths: map[cluster.PublicKey]plan.Path{n2.Keys[0].Public: {Send: true}, n3.Keys[0].Public: {Send: true}}}
	if err := f.apply(plan.Change{Self: &self}, cover(n2, "10.42.1.0/24"), cover(n3, "10.43.0.0/16"), confirmed); err != nil {
		t.Fatal(err)
	}
	done, result := make(chan struct{}), make(chan error, 1)
	go func() { result <- runUntil(data, done) }()
	for start := time.Now(); time.Since(start) < 2*time.Second; {
		for _, prefix := range []string{"10.42.1.7/32", "10.42.1.0/25", "10.42.0.0/16", "10.42.1.0/24"} {
			if err := f.apply(cover(n2, prefix)); err != nil {
				t.Fatal(err)
			}
		}
		// It moves: n3 has it before n2 lets go.
		for _, change := range []plan.Change{cover(n3, "10.42.1.7/32"), cover(n2, "10.44.0.0/16"), cover(n2, "10.42.1.0/24"), cover(n3, "10.43.0.0/16")} {
			if err := f.apply(change); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(done)
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// runUntil judges packets to 10.42.1.7 until done; it returns the first that is not encrypted.
func runUntil(data *datapath.Datapath, done <-chan struct{}) error {
	frame := packetFor(api.Question{Source: netip.MustParseAddr("10.0.0.1"), Destination: netip.MustParseAddr("10.42.1.7"), Protocol: "udp", Port: 53})
	for runs := 0; ; runs++ {
		select {
		case <-done:
			if runs < 1000 {
				return fmt.Errorf("only %d packets were judged meanwhile", runs)
			}
			return nil
		default:
		}
		got, err := data.Run(model.ProgramToNetdev, datapath.Input{Frame: frame})
		if err != nil {
			return err
		}
		if got.Verdict != model.Tunnel {
			return fmt.Errorf("packet %d: %v, %v", runs, got.Verdict, got.Reason)
		}
	}
}
