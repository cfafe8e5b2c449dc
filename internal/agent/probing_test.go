package agent

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warren/internal/cluster"
	"warren/internal/plan"
	"warren/internal/probe"
)

// fallSilent lets a peer miss questions until it is stale, and returns when that is.
func fallSilent(t *testing.T, peer *probe.Peer) time.Duration {
	t.Helper()
	now := monotonic()
	for peer.State(now).Phase != probe.Stale {
		now = peer.Next()
		peer.Tick(now)
	}
	return now
}

func TestSilentPeers(t *testing.T) {
	here, there := netip.MustParseAddrPort("10.0.0.1:6443"), netip.MustParseAddrPort("10.0.0.2:6443")
	machine := []string{"10.0.0.2/32"}
	for _, test := range []struct {
		name    string
		servers []netip.AddrPort
		epochs  []uint32 // of the peer's keys
		heard   map[plan.Slot]said
		silent  []plan.Slot // by which it has fallen silent
		want    []string
	}{
		{"it answers", []netip.AddrPort{here}, []uint32{1}, map[plan.Slot]said{0: answered, 1: answered}, nil, nil},
		{"it is silent: its machine, and not what lives there", []netip.AddrPort{there, here}, []uint32{1}, map[plan.Slot]said{0: answered, 1: answered}, []plan.Slot{0, 1}, machine},
		{"one way is silent", []netip.AddrPort{here}, []uint32{1}, map[plan.Slot]said{0: answered, 1: answered}, []plan.Slot{1}, nil},
		{"the key in use is silent, another one answers", []netip.AddrPort{here}, []uint32{1, 2}, map[plan.Slot]said{0: answered, 2: answered}, []plan.Slot{2}, nil},
		{"it never answered: nothing is encrypted to it", []netip.AddrPort{here}, []uint32{1}, nil, nil, nil},
		{"the API server is its own", []netip.AddrPort{there}, []uint32{1}, map[plan.Slot]said{0: answered}, []plan.Slot{0}, nil},
		{"there is no API server", nil, []uint32{1}, map[plan.Slot]said{0: answered}, []plan.Slot{0}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := rotating(t, test.epochs, test.heard)
			a.memory.apiServers = test.servers
			now := monotonic()
			for _, slot := range test.silent {
				for c, peer := range a.probing.peers {
					if c.slot == slot {
						now = max(now, fallSilent(t, peer.Peer))
					}
				}
			}
			paths := map[cluster.PublicKey]plan.Path{}
			a.decide(cluster.NodeID{Cluster: cluster.DefaultCluster, Name: "n2"}, now, paths)
			a.world.Apply(plan.Change{Paths: paths})
			var silent []string
			for prefix, entry := range a.world.WantEntries(plan.Scope{All: true}).Entries {
				if entry.Silent {
					silent = append(silent, prefix.String())
				}
			}
			if diff := cmp.Diff(test.want, silent); diff != "" {
				t.Errorf("silent (-want +got):\n%s", diff)
			}
		})
	}
}
