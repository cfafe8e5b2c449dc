package userspace

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.zx2c4.com/wireguard/device"
)

// waitingCheck is how often packets are dropped that wait for a session in vain.
const waitingCheck = 10 * time.Second

// dropWaiting drops the packets that wait in the engine for a session with a peer that has none. The engine keeps the
// last 128 batches for each peer, every packet in a buffer of 64 KiB, and drops them when nobody has answered for 90 s.
// But each further packet lets it count anew: for a peer that never answers, and is probed every five seconds, it would
// keep half a megabyte of probes. Error: the engine does not say what it has.
func dropWaiting(engine *device.Device, now time.Time) error {
	text, err := engine.IpcGet()
	if err != nil {
		return fmt.Errorf("list the peers: %w", err)
	}
	for _, key := range withoutSession(text, now) {
		if peer := engine.LookupPeer(key); peer != nil {
			peer.FlushStagedPackets()
		}
	}
	return nil
}

// withoutSession returns the peers, in a text of the configuration protocol, whose last handshake is too old for a
// session or never was. It is the same protocol on all platforms (https://www.wireguard.com/xplatform/).
func withoutSession(text string, now time.Time) (peers []device.NoisePublicKey) {
	var key device.NoisePublicKey
	for line := range strings.Lines(text) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), "="); name {
		case "public_key":
			_ = key.FromHex(value) // the engine's own
		case "last_handshake_time_sec":
			if seconds, err := strconv.ParseInt(value, 10, 64); err == nil && now.Sub(time.Unix(seconds, 0)) > device.RejectAfterTime {
				peers = append(peers, key)
			}
		}
	}
	return peers
}
