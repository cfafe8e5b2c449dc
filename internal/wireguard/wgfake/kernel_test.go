package wgfake_test

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"warren/internal/cluster"
	"warren/internal/plan"
	"warren/internal/wireguard"
	"warren/internal/wireguard/wgfake"
	"warren/internal/wireguard/wgtest"
)

func TestContract(t *testing.T) {
	wgtest.Contract(t, func(t *testing.T) *wireguard.Device {
		_, device := open(t)
		return device
	})
}

func open(t *testing.T) (*wgfake.Kernel, *wireguard.Device) {
	t.Helper()
	kernel := wgfake.New()
	kernel.Add("warren0")
	device, err := wireguard.OpenWith("warren0", kernel.Dial, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = device.Close() })
	return kernel, device
}

func TestWhatHappensToAPeer(t *testing.T) {
	kernel, device := open(t)
	peer := plan.Peer{Key: cluster.PublicKey{1}, Endpoint: netip.MustParseAddrPort("192.0.2.1:51880")}
	if err := device.SetPeers([]plan.Peer{peer}); err != nil {
		t.Fatal(err)
	}
	at, elsewhere := time.Unix(1000, 0), netip.MustParseAddrPort("192.0.2.9:1")
	kernel.Roam("warren0", peer.Key, elsewhere)
	kernel.Handshake("warren0", peer.Key, at)
	kernel.Transfer("warren0", peer.Key, 1, 2)
	kernel.Transfer("warren0", peer.Key, 1, 2)
	actual, err := device.Read()
	if err != nil {
		t.Fatal(err)
	}
	got := actual.Peers[0]
	if got.Peer.Endpoint != elsewhere || !got.LastHandshake.Equal(at) || got.Rx != 2 || got.Tx != 4 {
		t.Errorf("peer %+v", got)
	}
}

func TestDeviceGoes(t *testing.T) {
	kernel, device := open(t)
	kernel.Delete("warren0")
	if _, err := device.Read(); !errors.Is(err, wireguard.ErrNoDevice) {
		t.Errorf("Read of a deleted device: %v, want %v", err, wireguard.ErrNoDevice)
	}
	kernel.Add("warren0")
	kernel.Fail(syscall.EPERM)
	if _, err := device.Read(); !errors.Is(err, syscall.EPERM) {
		t.Errorf("Read: %v, want %v", err, syscall.EPERM)
	}
	kernel.Fail(nil)
	if _, err := device.Read(); err != nil {
		t.Error(err)
	}
}

// TestReplacing: whoever replaces everything, which loses packets, fails with the fake.
func TestReplacing(t *testing.T) {
	tests := map[string]wgtypes.Config{
		"all peers":       {ReplacePeers: true},
		"all allowed IPs": {Peers: []wgtypes.PeerConfig{{PublicKey: wgtypes.Key{1}, ReplaceAllowedIPs: true, AllowedIPs: []net.IPNet{}}}},
	}
	for name, config := range tests {
		t.Run(name, func(t *testing.T) {
			kernel := wgfake.New()
			kernel.Add("warren0")
			client, err := kernel.Dial()
			if err != nil {
				t.Fatal(err)
			}
			if err := client.ConfigureDevice("warren0", config); err == nil || !strings.Contains(err.Error(), "replaced") {
				t.Errorf("ConfigureDevice: %v, want a refusal", err)
			}
		})
	}
}
