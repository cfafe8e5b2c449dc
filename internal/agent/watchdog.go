package agent

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"time"

	"warren/internal/cluster"
	"warren/internal/plan"
	"warren/internal/probe"
	"warren/internal/wireguard"
)

// noteTraffic keeps what the device has counted, for its watchdog.
func (a *agent) noteTraffic(t *tunnel, actual wireguard.Actual) {
	now := monotonic()
	t.traffic = make(map[cluster.PublicKey]plan.Traffic, len(actual.Peers))
	for _, peer := range actual.Peers {
		probed, known := a.probing.peers[channel{t.slot, peer.Peer.Key}]
		if !known {
			continue
		}
		phase := probed.State(now).Phase
		t.traffic[peer.Peer.Key] = plan.Traffic{Sent: peer.Tx, Received: peer.Rx, Answers: phase != probe.Stale && phase != probe.Down}
	}
}

// treatStalls renews peers that are stuck, and a device when all of its peers are.
func (a *agent) treatStalls(ctx context.Context) error {
	for _, t := range a.tunnelsInUse() {
		if err := a.treatStallsOf(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

func (a *agent) treatStallsOf(ctx context.Context, t *tunnel) error {
	if len(t.traffic) == 0 {
		return nil
	}
	cures := t.watchdog.Observe(time.Now(), t.traffic)
	t.traffic = nil // counted once
	for key, cure := range cures {
		if cure == plan.RecreateDevice {
			a.recreations++
			a.Log.Error("no peer answers through the tunnel, and renewing them did not help; the device is recreated", "device", t.link.Name)
			return t.device.remove(ctx, t.link.Name)
		}
		if err := a.renew(t, key); err != nil {
			return err
		}
	}
	return nil
}

// renew takes a peer out of the device; the round puts it back, and WireGuard begins anew with it.
func (a *agent) renew(t *tunnel, key cluster.PublicKey) error {
	a.renewals++
	level := slog.LevelWarn
	if t.watchdog.Renewals(key) > 1 {
		level = slog.LevelDebug // said already
	}
	a.Log.Log(context.Background(), level, "the tunnel to a peer is stuck; it is renewed", "node", a.world.Routes().Peers[key].Node, "public_key", key)
	if err := t.wg.RemovePeers([]cluster.PublicKey{key}); err != nil {
		return err
	}
	delete(t.have.Peers, key)
	maps.DeleteFunc(t.have.AllowedIPs, func(_ netip.Prefix, owner cluster.PublicKey) bool { return owner == key })
	a.pending.All = true
	return nil
}
