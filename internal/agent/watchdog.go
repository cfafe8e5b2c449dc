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

// noteTraffic keeps what the device has counted, for the watchdog, and has the path to peers measured to which
// large packets seem to get lost.
func (a *agent) noteTraffic(actual wireguard.Actual) {
	now, before := monotonic(), a.counted
	a.counted = make(map[cluster.PublicKey]plan.Traffic, len(actual.Peers))
	for _, peer := range actual.Peers {
		key := peer.Peer.Key
		probed, known := a.probing.peers[key]
		if !known {
			continue
		}
		phase := probed.State(now).Phase
		traffic := plan.Traffic{Sent: peer.Tx, Received: peer.Rx, Answers: phase != probe.Stale && phase != probe.Down}
		if last, ok := before[key]; ok && oneWay(last, traffic) && phase == probe.Confirmed {
			a.probing.do(key, func(peer *probe.Peer) { peer.LargeLost(now) })
		}
		a.counted[key] = traffic
	}
	a.traffic = a.counted
}

// oneWay reports whether several large packets were sent between two readings, and next to nothing came back. It may
// be what an application does; then the path is measured for nothing.
func oneWay(before, after plan.Traffic) bool {
	sent, received := after.Sent-before.Sent, after.Received-before.Received
	return after.Sent >= before.Sent && sent > 4096 && received < sent/10
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
