package probe

import (
	"encoding/hex"
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"warren/internal/cluster"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var (
	keyA, keyB = cluster.PublicKey{0: 0xaa}, cluster.PublicKey{0: 0xbb}
	addrA      = Address(keyA)
	addrB      = Address(keyB)
)

// Address must never change: nodes of different versions compute each other's.
func TestAddress(t *testing.T) {
	for _, test := range []struct {
		name string
		key  cluster.PublicKey
		want string
	}{
		{"zero key", cluster.PublicKey{}, "fe80:7761:7272:656e:9914:1c38:3e53:20e6"},
		{"key A", keyA, "fe80:7761:7272:656e:5351:f08b:7690:c3fe"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Address(test.key)
			if got.String() != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
			if !Prefix.Contains(got) || !got.IsLinkLocalUnicast() {
				t.Errorf("%s is not a link-local address of %s", got, Prefix)
			}
		})
	}
}

// everything has all fields set.
var everything = Message{
	Kind: Reply, Nonce: 0x0102030405060708, Size: 1440, FirstFragment: 1396,
	Stance: Stance{Confirmed: true, Encrypting: true, Enforcing: true, Mode: cluster.ModeStrict, Epoch: 0xa1a2a3a4},
}

func TestPacketBytes(t *testing.T) {
	for _, test := range []struct {
		name string
		m    Message
		size int
	}{
		{"request", Message{Kind: Request, Nonce: 1, Size: MinSize}, MinSize},
		{"everything", everything, MinSize},
		{"odd-size", Message{Kind: Request, Nonce: 1, Size: 99, Stance: Stance{Mode: cluster.ModePermissive, Encrypting: true}}, 99},
	} {
		t.Run(test.name, func(t *testing.T) {
			packet, err := Packet(addrA, addrB, 51880, test.m, test.size)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, test.name, hex.Dump(packet))
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func TestPacketRefuses(t *testing.T) {
	for _, test := range []struct {
		name     string
		src, dst netip.Addr
		size     int
		want     string
	}{
		{"too small", addrA, addrB, MinSize - 1, "probe of 95 bytes: 96 to 65535 are possible"},
		{"too large", addrA, addrB, MaxSize + 1, "probe of 65536 bytes"},
		{"foreign source", netip.MustParseAddr("fe80::1"), addrB, MinSize, "probe from fe80::1"},
		{"IPv4 destination", addrA, netip.MustParseAddr("10.0.0.1"), MinSize, "to 10.0.0.1"},
		{"no destination", addrA, netip.Addr{}, MinSize, "to invalid IP"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Packet(test.src, test.dst, 51880, everything, test.size)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestParse(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(packet []byte)
		cut    int // bytes that are left; 0: all
		length int // 0: as long as the packet
		want   string
	}{
		{name: "whole"},
		{name: "head", cut: HeadSize, length: 1440},
		{name: "smallest head", cut: MinSize, length: 1440},
		{name: "later version", cut: HeadSize, length: 1440, change: func(p []byte) { p[52], p[54], p[80] = 2, 0xff, 7 }},
		{name: "empty", cut: -1, length: 1440, want: "0 bytes of 1440"},
		{name: "head too short", cut: MinSize - 1, length: 1440, want: "95 bytes of 1440"},
		{name: "longer than it was", cut: HeadSize, length: 100, want: "128 bytes of 100"},
		{name: "IPv4", change: func(p []byte) { p[0] = 0x45 }, want: "not UDP over IPv6"},
		{name: "TCP", change: func(p []byte) { p[6] = 6 }, want: "not UDP over IPv6"},
		{name: "another length", length: 1441, want: "its headers tell another length than 1441"},
		{name: "another UDP length", change: func(p []byte) { p[45]++ }, want: "its headers tell another length"},
		{name: "damaged", change: func(p []byte) { p[200] = 1 }, want: "wrong checksum"},
		{name: "foreign source", cut: HeadSize, length: 1440, change: func(p []byte) { p[9] = 0 }, want: "not of fe80:7761:7272:656e::/64"},
		{name: "foreign destination", cut: HeadSize, length: 1440, change: func(p []byte) { p[25] = 0 }, want: "not of fe80:7761:7272:656e::/64"},
		{name: "no magic", cut: HeadSize, length: 1440, change: func(p []byte) { p[48] = 0 }, want: "payload begins with 00 61 72 72 01"},
		{name: "version 0", cut: HeadSize, length: 1440, change: func(p []byte) { p[52] = 0 }, want: "payload begins with"},
		{name: "unknown kind", cut: HeadSize, length: 1440, change: func(p []byte) { p[53] = 3 }, want: "unknown kind of probe: 3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			packet, err := Packet(addrA, addrB, 51880, everything, 1440)
			if err != nil {
				t.Fatal(err)
			}
			if test.change != nil {
				test.change(packet)
			}
			if test.length == 0 {
				test.length = len(packet)
			}
			if test.cut != 0 {
				packet = packet[:max(test.cut, 0)]
			}
			src, dst, m, err := Parse(packet, test.length)
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("error %v, want one with %q", err, test.want)
				}
				return
			}
			if err != nil || src != addrA || dst != addrB {
				t.Fatalf("from %s to %s (%v), want from %s to %s", src, dst, err, addrA, addrB)
			}
			if diff := cmp.Diff(everything, m); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnknownKindCanBeTold(t *testing.T) {
	packet, err := Packet(addrA, addrB, 51880, Message{Kind: 9}, MinSize)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := Parse(packet, len(packet)); !errors.Is(err, ErrKind) {
		t.Errorf("error %v, want %v", err, ErrKind)
	}
}

func drawMessage(t *rapid.T) Message {
	return Message{
		Kind:          rapid.SampledFrom([]Kind{Request, Reply}).Draw(t, "kind"),
		Nonce:         rapid.Uint64().Draw(t, "nonce"),
		Size:          rapid.Uint16().Draw(t, "size"),
		FirstFragment: rapid.Uint16().Draw(t, "fragment"),
		Stance: Stance{
			Confirmed:  rapid.Bool().Draw(t, "confirmed"),
			Encrypting: rapid.Bool().Draw(t, "encrypting"),
			Enforcing:  rapid.Bool().Draw(t, "enforcing"),
			Mode:       cluster.Mode(rapid.Byte().Draw(t, "mode")),
			Epoch:      rapid.Uint32().Draw(t, "epoch"),
		},
	}
}

func TestPropertyParseIsTheInverseOfPacket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, size := drawMessage(t), rapid.IntRange(MinSize, MaxSize).Draw(t, "size of the packet")
		packet, err := Packet(addrA, addrB, rapid.Uint16().Draw(t, "port"), m, size)
		if err != nil {
			t.Fatal(err)
		}
		for _, head := range []int{min(HeadSize, size), size} {
			src, dst, got, err := Parse(packet[:head], size)
			if err != nil || src != addrA || dst != addrB || got != m {
				t.Fatalf("%d of %d bytes: %+v from %s to %s (%v), want %+v", head, size, got, src, dst, err, m)
			}
		}
	})
}

// FuzzParse: no bytes are trouble, and what is understood is understood again after Packet wrote it.
func FuzzParse(f *testing.F) {
	packet, err := Packet(addrA, addrB, 51880, everything, 1440)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(packet, 1440)
	f.Add(packet[:HeadSize], 1440)
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, packet []byte, length int) {
		src, dst, m, err := Parse(packet, length)
		if err != nil {
			return
		}
		again, err := Packet(src, dst, 51880, m, length)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, got, err := Parse(again, length); err != nil || got != m {
			t.Errorf("%+v became %+v (%v)", m, got, err)
		}
	})
}
