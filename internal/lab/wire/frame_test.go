package wire

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var magic = [MagicLen]byte{0xfe, 0xed, 0xfa, 0xce, 1, 2, 3, 4}

func markerOf(own byte) Marker {
	var m Marker
	copy(m[:], magic[:])
	m[MagicLen] = own
	return m
}

func TestFindMarkers(t *testing.T) {
	a, b := markerOf('a'), markerOf('b')
	tests := []struct {
		name  string
		frame []byte
		want  []Marker
	}{
		{name: "none", frame: bytes.Repeat([]byte{0xfe}, 100)},
		{name: "one, at an odd place", frame: join([]byte{1, 2, 3}, a[:], []byte{4}), want: []Marker{a}},
		{name: "many times over is one", frame: a.Fill(1000), want: []Marker{a}},
		{name: "two", frame: join(b.Fill(48), a.Fill(48)), want: []Marker{b, a}},
		{name: "cut off", frame: a[:15]},
		{name: "right behind something that begins alike", frame: join(magic[:4], a[:]), want: []Marker{a}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, FindMarkers(test.frame, magic)); diff != "" {
				t.Errorf("FindMarkers (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFillIsCutProof: whatever 31 bytes of a payload a fragment has, the marker is in them.
func TestFillIsCutProof(t *testing.T) {
	marker := markerOf('x')
	payload := marker.Fill(500)
	for at := range len(payload) - 31 {
		if got := FindMarkers(payload[at:at+31], magic); len(got) != 1 || got[0] != marker {
			t.Fatalf("bytes %d to %d: %v", at, at+31, got)
		}
	}
}

func TestSettle(t *testing.T) {
	head := func(payload []byte) []byte {
		return ethernet(macN2, macN1, etherIPv4, ipv4(n1, n2, protoUDP, 0x2000, payload))
	}
	rest := ethernet(macN2, macN1, etherIPv4, ipv4(n1, n2, protoUDP, 175, make([]byte, 80)))
	podHead := ethernet(macN2, macN1, etherIPv4, ipv4(p1, p2, protoUDP, 0x2000, udp(5, 6, make([]byte, 1400))))
	podRest := ethernet(macN2, macN1, etherIPv4, ipv4(p1, p2, protoUDP, 176, make([]byte, 80)))
	data := head(join(ports(51880, 51880, 8+1472, 0), wireGuard(4, 1392)))
	text := head(udp(51880, 51880, make([]byte, 1392)))
	overlaid := func(inner []byte) []byte {
		return ip(n1, n2, protoUDP, udp(40000, vxlanPort, vxlan(inner)))
	}
	tests := []struct {
		name   string
		frames [][]byte
		want   []string
	}{
		{name: "WireGuard in two pieces", frames: [][]byte{data, rest}, want: []string{"wireguard udp 10.10.0.1:51880 > 10.10.0.2:51880", "wireguard udp 10.10.0.1:51880 > 10.10.0.2:51880"}},
		{name: "in the other order", frames: [][]byte{rest, data}, want: []string{"wireguard udp 10.10.0.1:51880 > 10.10.0.2:51880", "wireguard udp 10.10.0.1:51880 > 10.10.0.2:51880"}},
		{name: "clear text in two pieces", frames: [][]byte{text, rest}, want: []string{"clear udp 10.10.0.1:51880 > 10.10.0.2:51880", "clear udp 10.10.0.1:51880 > 10.10.0.2:51880"}},
		{name: "a piece of nothing", frames: [][]byte{rest}, want: []string{"clear udp 10.10.0.1 > 10.10.0.2"}},
		{name: "pods' pieces belong to their flow", frames: [][]byte{podHead, podRest}, want: []string{"clear udp 10.42.1.11:5 > 10.42.2.11:6", "clear udp 10.42.1.11:5 > 10.42.2.11:6"}},
		{name: "in an overlay", frames: [][]byte{overlaid(podHead), overlaid(podRest)}, want: []string{"clear udp 10.42.1.11:5 > 10.42.2.11:6", "clear udp 10.42.1.11:5 > 10.42.2.11:6"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var frames []Frame
			for _, raw := range test.frames {
				frames = append(frames, inspect(raw, twoNodes(), magic))
			}
			Settle(frames)
			var got []string
			for _, frame := range frames {
				got = append(got, frame.Kind.String()+" "+frame.Flow.String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Settle (-want +got):\n%s", diff)
			}
		})
	}
}
