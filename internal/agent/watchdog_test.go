package agent

import (
	"log/slog"
	"testing"
	"time"

	"warren/internal/cluster"
	"warren/internal/plan"
	"warren/internal/probe"
)

// TestWasStuck: what was read of a peer a while ago is no reason to renew it, or the device, when it has gone since, or
// answers again.
func TestWasStuck(t *testing.T) {
	key := cluster.PublicKey{1}
	for _, test := range []struct {
		name  string
		peers map[cluster.PublicKey]plan.Peer // of the device
	}{
		{name: "it has gone"},
		{name: "it answers", peers: map[cluster.PublicKey]plan.Peer{key: {Key: key}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			tunnel := &tunnel{watchdog: plan.NewWatchdog(), have: plan.State{Peers: test.peers}}
			for ago := range 2 { // stuck for a minute
				tunnel.watchdog.Observe(time.Now().Add(time.Duration(ago-2)*time.Minute), map[cluster.PublicKey]plan.Traffic{key: {Sent: uint64(ago)}})
			}
			tunnel.traffic = map[cluster.PublicKey]plan.Traffic{key: {Sent: 2}}
			a := &agent{Options: Options{Log: slog.New(slog.DiscardHandler)}, world: plan.NewWorld(cluster.SourceDirectory, false), probing: newProbing()}
			answers := probe.New(monotonic(), probe.Options{Kernel: probe.Kernel{Sends: true}})
			a.probing.peers[channel{tunnel.slot, key}] = &probed{Peer: answers}
			if err := a.treatStallsOf(t.Context(), tunnel); err != nil || a.renewals != 0 || a.recreations != 0 {
				t.Errorf("%d renewals, %d recreations, %v", a.renewals, a.recreations, err)
			}
		})
	}
}
