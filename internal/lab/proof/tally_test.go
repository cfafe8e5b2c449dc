package proof

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warren/internal/lab/wire"
)

// situation is a run of two rows between n1 and n2: pod to pod by TCP, there and back.
type situation struct {
	Measurement
	// during holds the frames captured while each row ran, after those of neither.
	during [2][]wire.Frame
}

func newSituation() *situation {
	rows := Rows(topology(2, 1), Filter{Classes: []string{"pod-pod"}, Families: []string{"ipv4"}, Protocols: []string{"tcp"}})
	s := &situation{Measurement: Measurement{nodes: nodeAddresses(topology(2, 1))}}
	for i, row := range rows {
		s.exchanges = append(s.exchanges, exchange{
			row: row, marker: markerOf(i), opening: markerOf(10 + i), closing: markerOf(20 + i),
			flow: wire.Flow{Protocol: 6, Source: netip.AddrPortFrom(row.source.Address, uint16(40000+i)), Destination: netip.AddrPortFrom(row.destination.Address, EchoPort)},
		})
	}
	return s
}

func markerOf(i int) wire.Marker { return wire.Marker{0: 0xfe, 15: byte(i + 1)} }

// captured puts the frames of each row between its opening and its closing.
func (s *situation) captured() Measurement {
	m := s.Measurement
	for i, e := range s.exchanges {
		m.frames = append(m.frames, wire.Frame{Kind: wire.Outside, Markers: []wire.Marker{e.opening}})
		m.frames = append(m.frames, s.during[i]...)
		m.frames = append(m.frames, wire.Frame{Kind: wire.Outside, Markers: []wire.Marker{e.closing}})
	}
	return m
}

// encrypted adds a WireGuard frame in each direction to every row.
func (s *situation) encrypted() *situation {
	for i := range s.during {
		s.tunnel("10.10.0.1", "10.10.0.2", i).tunnel("10.10.0.2", "10.10.0.1", i)
	}
	return s
}

// tunnel adds a WireGuard frame to a row.
func (s *situation) tunnel(from, to string, row int) *situation {
	s.during[row] = append(s.during[row], wire.Frame{Kind: wire.WireGuard, Flow: udpFlow(from, to)})
	return s
}

func udpFlow(from, to string) wire.Flow {
	return wire.Flow{Protocol: 17, Source: netip.AddrPortFrom(netip.MustParseAddr(from), 51880), Destination: netip.AddrPortFrom(netip.MustParseAddr(to), 51880)}
}

func (s *situation) frame(frames ...wire.Frame) *situation {
	s.frames = append(s.frames, frames...)
	return s
}

func (s *situation) failed(i int) *situation {
	s.exchanges[i].failure = errors.New("timed out")
	return s
}

func (s *situation) void(reason string) *situation {
	s.Measurement.void = reason
	return s
}

// clearFrames are a SYN and a segment with the marker for each row, as without encryption.
func (s *situation) clearFrames() *situation {
	for i, e := range s.exchanges {
		s.frame(wire.Frame{Kind: wire.Clear, Port: e.row.From, Flow: e.flow, Length: 74},
			wire.Frame{Kind: wire.Clear, Port: e.row.From, Flow: e.flow, Length: 200, Markers: []wire.Marker{markerOf(i)}})
	}
	return s
}

func TestMeasured(t *testing.T) {
	syn := wire.Frame{Kind: wire.Clear, Port: "n1", Flow: newSituation().exchanges[0].flow, Length: 74}
	answer := wire.Frame{Kind: wire.Clear, Port: "n2", Flow: newSituation().exchanges[0].flow.Reverse(), Length: 74}
	translated := wire.Frame{Kind: wire.Clear, Port: "n1", Flow: udpFlow("10.10.0.1", "10.10.0.2"), Length: 300, Markers: []wire.Marker{markerOf(1)}}
	stranger := wire.Frame{Kind: wire.Clear, Port: "n2", Flow: udpFlow("10.10.0.2", "10.10.0.1"), Length: 90}
	readable := wire.Frame{Kind: wire.WireGuard, Flow: udpFlow("10.10.0.1", "10.10.0.2"), Markers: []wire.Marker{markerOf(0)}}
	outside := wire.Frame{Kind: wire.Outside, Markers: []wire.Marker{markerOf(0)}}
	link := wire.Frame{Kind: wire.Neighbours}

	tests := []struct {
		name string
		seen *situation
		want []string // "ok" or the problem of each row, then what else is wrong
	}{
		{name: "all encrypted", seen: newSituation().encrypted().frame(link), want: []string{"ok", "ok"}},
		{name: "one SYN in clear", seen: newSituation().encrypted().frame(syn),
			want: []string{"1 of its frames went between nodes in clear, such as tcp 10.42.1.11:40000 > 10.42.2.11:4242 (sent by n1, 74 bytes)", "ok"}},
		{name: "the answer in clear", seen: newSituation().encrypted().frame(answer),
			want: []string{"1 of its frames went between nodes in clear, such as tcp 10.42.2.11:4242 > 10.42.1.11:40000 (sent by n2, 74 bytes)", "ok"}},
		{name: "translated addresses, known by the marker", seen: newSituation().encrypted().frame(translated),
			want: []string{"ok", "its payload could be read in 1 frames on the wire, such as udp 10.10.0.1:51880 > 10.10.0.2:51880 (sent by n1, 300 bytes)"}},
		{name: "clear text inside WireGuard frames", seen: newSituation().encrypted().frame(readable),
			want: []string{"its payload could be read in 1 frames on the wire, such as one between other machines", "ok"}},
		{name: "the marker where nobody should have it", seen: newSituation().encrypted().frame(outside),
			want: []string{"its payload could be read in 1 frames on the wire, such as one between other machines", "ok"}},
		{name: "a clear frame of no row", seen: newSituation().encrypted().frame(stranger),
			want: []string{"ok", "ok", "stray: udp 10.10.0.2:51880 > 10.10.0.1:51880 (sent by n2, 90 bytes)"}},
		{name: "lost", seen: newSituation().encrypted().failed(1),
			want: []string{"ok", "no answer (timed out); WireGuard frames: 1 from n2, 1 from n1"}},
		{name: "the other end does not decrypt", seen: newSituation().tunnel("10.10.0.1", "10.10.0.2", 0).failed(0),
			want: []string{
				"no answer (timed out): n1 sent 1 WireGuard frames, n2 sent none back",
				"delivered, but WireGuard frames do not account for it: 0 from n2, 0 from n1"}},
		{name: "delivered by some other way", seen: newSituation().tunnel("10.10.0.1", "10.10.0.2", 0).tunnel("10.10.0.2", "10.10.0.1", 0),
			want: []string{"ok", "delivered, but WireGuard frames do not account for it: 0 from n2, 0 from n1"}},
		{name: "WireGuard before and after is not the row's", seen: newSituation().encrypted().frame(wire.Frame{Kind: wire.WireGuard, Flow: udpFlow("10.10.0.1", "10.10.0.2")}), want: []string{"ok", "ok"}},
		{name: "incomplete capture", seen: newSituation().encrypted().void("3 frames dropped"),
			want: []string{"ok", "ok", "void: the capture saw too little: 3 frames dropped"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var report Report
			report.measured(test.seen.captured())
			var got []string
			wantOK := true
			for _, row := range report.Rows {
				got = append(got, first(row.Problem, "ok"))
			}
			if report.StrayClearFrames > 0 {
				got = append(got, "stray: "+report.StrayExample)
			}
			if report.Void != "" {
				got = append(got, "void: "+report.Void)
			}
			for _, line := range got {
				wantOK = wantOK && line == "ok"
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			if report.OK != wantOK {
				t.Errorf("OK = %v, want %v", report.OK, wantOK)
			}
		})
	}
}

func TestControl(t *testing.T) {
	tests := []struct {
		name string
		seen *situation
		want string // why it is void
	}{
		{name: "sees all markers", seen: newSituation().clearFrames()},
		{name: "sees nothing", seen: newSituation(), want: "the control did not see the clear text that it had sent in row pod-pod n1 to n2, ipv4 tcp"},
		{name: "misses one row", seen: func() *situation { s := newSituation().clearFrames(); s.frames = s.frames[:2]; return s }(),
			want: "the control did not see the clear text that it had sent in row pod-pod n2 to n1, ipv4 tcp"},
		{name: "does not deliver", seen: newSituation().clearFrames().failed(0), want: "the control delivered 1 of 2 rows: this machine loses packets even without encryption"},
		{name: "incomplete", seen: newSituation().clearFrames().void("blind"), want: "the control saw too little: blind"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var report Report
			report.control(test.seen.captured())
			if diff := cmp.Diff(test.want, report.Void); diff != "" {
				t.Errorf("void (-want +got):\n%s", diff)
			}
		})
	}
}

// TestReportFields holds the field names that scripts read.
func TestReportFields(t *testing.T) {
	report := Report{Lab: "x"}
	report.control(newSituation().clearFrames().captured())
	report.measured(newSituation().encrypted().captured())
	report.Rows = report.Rows[:1]
	got, err := json.MarshalIndent(report, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.TrimSpace(`
{
 "ok": true,
 "lab": "x",
 "void": "",
 "control": {
  "rows": 2,
  "delivered": 2,
  "clear_frames": 4,
  "marker_frames": 2
 },
 "rows": [
  {
   "class": "pod-pod",
   "from": "n1",
   "to": "n2",
   "family": "ipv4",
   "protocol": "tcp",
   "delivered": true,
   "marker_frames": 0,
   "clear_frames": 0,
   "wireguard_frames": 2,
   "source": "10.42.1.11",
   "destination": "10.42.2.11",
   "ok": true
  }
 ],
 "stray_clear_frames": 0,
 "frames": 8,
 "wireguard_frames": 4
}`)
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func TestChecksum(t *testing.T) {
	// The example of RFC 1071 §3.
	if got := checksum([]byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}); got != ^uint16(0xddf2) {
		t.Errorf("checksum = %#04x, want %#04x", got, ^uint16(0xddf2))
	}
}
