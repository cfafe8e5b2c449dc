package userspace

import (
	"crypto/ecdh"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/conn/bindtest"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/tuntest"
)

func TestWithoutSession(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	tests := []struct {
		name      string
		handshake int64 // Unix time
		want      bool
	}{
		{name: "never", handshake: 0, want: true},
		{name: "just now", handshake: now.Unix(), want: false},
		{name: "the session may still be used", handshake: now.Unix() - 180, want: false},
		{name: "the session is over", handshake: now.Unix() - 181, want: true},
	}
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			key := device.NoisePublicKey{31: byte(i + 1)}
			text := fmt.Sprintf("private_key=%064x\npublic_key=%x\nlast_handshake_time_sec=%d\nlast_handshake_time_nsec=0\n", 1, key[:], test.handshake)
			want := []device.NoisePublicKey{key}
			if !test.want {
				want = nil
			}
			if diff := cmp.Diff(want, withoutSession(text, now)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestDropWaiting: what was sent to a peer before it was there does not wait for it any more, and what is sent afterwards
// arrives.
func TestDropWaiting(t *testing.T) {
	binds := bindtest.NewChannelBinds()
	sender, from := engineOf(t, binds[0], 1, 2)
	early, late := ping(1), ping(2)
	from.Outbound <- early
	for deadline := time.Now().Add(10 * time.Second); !sent(t, sender); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no handshake begins")
		}
	}
	if err := dropWaiting(sender, time.Now()); err != nil {
		t.Fatal(err)
	}
	from.Outbound <- late
	_, to := engineOf(t, binds[1], 2, 1)
	select {
	case got := <-to.Inbound:
		if diff := cmp.Diff(late, got); diff != "" {
			t.Errorf("the first packet that arrives (-want +got)\n%s", diff)
		}
	case <-time.After(30 * time.Second):
		t.Error("nothing arrives")
	}
}

// engineOf returns an engine that is up, with one peer. Keys are named by the first byte of the private one.
func engineOf(t *testing.T, bind conn.Bind, own, other byte) (*device.Device, *tuntest.ChannelTUN) {
	t.Helper()
	tun := tuntest.NewChannelTUN()
	engine := device.NewDevice(tun.TUN(), bind, device.NewLogger(device.LogLevelSilent, ""))
	t.Cleanup(engine.Close)
	err := engine.IpcSet(fmt.Sprintf("private_key=%s\npublic_key=%s\nallowed_ip=0.0.0.0/0\nendpoint=127.0.0.1:%d\n", private(own), public(t, other), own))
	if err := errors.Join(err, engine.Up()); err != nil {
		t.Fatal(err)
	}
	return engine, tun
}

// private is a private key as the protocol spells it, clamped as X25519 does it (RFC 7748, section 5).
func private(name byte) string { return fmt.Sprintf("%02x%060x40", name<<3, 0) }

func public(t *testing.T, name byte) string {
	t.Helper()
	raw, err := hex.DecodeString(private(name))
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdh.X25519().NewPrivateKey(raw)
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(key.PublicKey().Bytes())
}

// ping is an ICMP request to the other end, from one of several addresses.
func ping(from byte) []byte {
	return tuntest.Ping(netip.MustParseAddr("10.0.0.200"), netip.AddrFrom4([4]byte{10, 0, 0, from}))
}

// sent reports whether the engine has sent anything, which begins with a handshake.
func sent(t *testing.T, engine *device.Device) bool {
	t.Helper()
	text, err := engine.IpcGet()
	if err != nil {
		t.Fatal(err)
	}
	return !strings.Contains(text, "tx_bytes=0\n")
}
