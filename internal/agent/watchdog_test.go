package agent

import (
	"log/slog"
	"testing"
	"time"

	"warren/internal/cluster"
	"warren/internal/plan"
)

// TestPeerThatIsGoneIsNotStuck: what was read of a peer that has gone since is no reason to renew it, or the device.
func TestPeerThatIsGoneIsNotStuck(t *testing.T) {
	key := cluster.PublicKey{1}
	tunnel := &tunnel{watchdog: plan.NewWatchdog(), have: plan.NewState()}
	for ago := range 2 { // stuck for a minute
		tunnel.watchdog.Observe(time.Now().Add(time.Duration(ago-2)*time.Minute), map[cluster.PublicKey]plan.Traffic{key: {Sent: uint64(ago)}})
	}
	tunnel.traffic = map[cluster.PublicKey]plan.Traffic{key: {Sent: 2}}
	a := &agent{Options: Options{Log: slog.New(slog.DiscardHandler)}, world: plan.NewWorld(cluster.SourceDirectory, false)}
	if err := a.treatStallsOf(t.Context(), tunnel); err != nil || a.renewals != 0 || a.recreations != 0 {
		t.Errorf("%d renewals, %d recreations, %v", a.renewals, a.recreations, err)
	}
}
