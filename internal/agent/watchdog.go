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

// noteTraffic keeps what the device has counted, for the watchdog.
func (a *agent) noteTraffic(actual wireguard.Actual) {
	now := monotonic()
	a.traffic = make(map[cluster.PublicKey]plan.Traffic, len(actual.Peers))
	for _, peer := range actual.Peers {
		probed, known := a.probing.peers[peer.Peer.Key]
		if !known {
			continue
		}
		phase := probed.State(now).Phase
		a.traffic[peer.Peer.Key] = plan.Traffic{Sent: peer.Tx, Received: peer.Rx, Answers: phase != probe.Stale && phase != probe.Down}
	}
}

// treatStalls renews peers that are stuck, and the device when all are.
func (a *agent) treatStalls(ctx context.Context) error {
	if len(a.traffic) == 0 {
		return nil
	}
	cures := a.watchdog.Observe(time.Now(), a.traffic)
	a.traffic = nil // counted once
	for key, cure := range cures {
		if cure == plan.RecreateDevice {
			a.recreations++
			a.Log.Error("no peer answers through the tunnel, and renewing them did not help; the device is recreated", "device", a.Config.Device)
			return a.device.remove(ctx, a.Config.Device)
		}
		if err := a.renew(key); err != nil {
			return err
		}
	}
	return nil
}

// renew takes a peer out of the device; the round puts it back, and WireGuard begins anew with it.
func (a *agent) renew(key cluster.PublicKey) error {
	a.renewals++
	level := slog.LevelWarn
	if a.watchdog.Renewals(key) > 1 {
		level = slog.LevelDebug // said already
	}
	a.Log.Log(context.Background(), level, "the tunnel to a peer is stuck; it is renewed", "node", a.world.Routes().Peers[key].Node, "public_key", key)
	if err := a.wg.RemovePeers([]cluster.PublicKey{key}); err != nil {
		return err
	}
	delete(a.have.Peers, key)
	maps.DeleteFunc(a.have.AllowedIPs, func(_ netip.Prefix, owner cluster.PublicKey) bool { return owner == key })
	a.pending.All = true
	return nil
}
