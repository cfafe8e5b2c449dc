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

// noteTraffic keeps what a device has counted, for its watchdog, and has the path to peers measured to which
// large packets seem to get lost.
func (a *agent) noteTraffic(t *tunnel, actual wireguard.Actual) {
	now, before := monotonic(), t.counted
	t.counted = make(map[cluster.PublicKey]plan.Traffic, len(actual.Peers))
	for _, peer := range actual.Peers {
		c := channel{t.slot, peer.Peer.Key}
		probed, known := a.probing.peers[c]
		if !known {
			continue
		}
		traffic := plan.Traffic{Sent: peer.Tx, Received: peer.Rx}
		if traffic.Received != before[c.peer].Received {
			a.departures.Heard(a.world.Routes().Peers[c.peer].Node, time.Now())
		}
		if last, ok := before[c.peer]; ok && oneWay(last, traffic) && probed.State(now).Phase == probe.Confirmed {
			a.probing.do(c, func(peer *probe.Peer) { peer.LargeLost(now) })
		}
		t.counted[c.peer] = traffic
	}
	t.traffic = t.counted
}

// oneWay reports whether several large packets were sent between two readings, and next to nothing came back. It may
// be what an application does; then the path is measured for nothing.
func oneWay(before, after plan.Traffic) bool {
	sent, received := after.Sent-before.Sent, after.Received-before.Received
	return after.Sent >= before.Sent && sent > 4096 && received < sent/10
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
	// The reading is from the last round; a peer that has gone since, or has another key, is not stuck.
	maps.DeleteFunc(t.traffic, func(key cluster.PublicKey, _ plan.Traffic) bool {
		_, there := t.have.Peers[key]
		return !there
	})
	if len(t.traffic) == 0 {
		return nil
	}
	a.noteAnswers(t)
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

// noteAnswers adds to the reading who answers probes by now: one that has begun to since is not renewed, which would
// take its session away.
func (a *agent) noteAnswers(t *tunnel) {
	now := monotonic()
	for key, traffic := range t.traffic {
		phase := a.stateOf(channel{t.slot, key}, now).Phase
		traffic.Answers = phase != probe.Stale && phase != probe.Down
		t.traffic[key] = traffic
	}
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
