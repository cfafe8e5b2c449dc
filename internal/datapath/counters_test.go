package datapath

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warren/internal/datapath/model"
)

// TestPeerCounters: what is out of the ordinary is counted for the peer that it is about, and nothing
// else is.
func TestPeerCounters(t *testing.T) {
	d := openCluster(t)
	from := func(src, dst string) Input { return v4(ipv4{src: src, dst: dst, protocol: protoTCP}.wrap(tcp(1, 2))) }
	peer := func(endpoint string, reason model.Reason, packets uint64) PeerCounter {
		c := PeerCounter{Counter: Counter{Reason: reason, Packets: packets, Bytes: packets * uint64(len(from("10.0.0.1", "10.0.0.2").Frame))}}
		if endpoint != "" {
			c.Endpoint = netip.MustParseAddr(endpoint)
		}
		return c
	}
	tests := []struct {
		name    string
		program model.Program
		change  func(*model.Config)
		packets []Input
		want    []PeerCounter
	}{
		{
			name: "egress", program: toNetdev, change: strict,
			packets: []Input{
				from("10.0.0.1", "10.0.0.2"), from("10.0.0.1", "192.0.2.1"), from("10.0.0.1", "10.0.0.1"), // nothing to see
				from("10.0.0.1", "10.0.0.4"), from("10.0.0.1", "10.0.0.8"), from("10.244.1.5", "10.244.8.5"),
				from("10.0.0.1", "10.0.0.3"), from("10.0.0.1", "10.244.3.7"),
				from("192.0.2.1", "10.0.0.2"), from("192.0.2.1", "10.244.2.5"), from("192.0.2.1", "10.244.2.65"),
			},
			want: []PeerCounter{
				peer("", model.ReasonNoPair, 1),
				peer("10.0.0.2", model.ReasonSourceNotAllowed, 2),
				peer("10.0.0.3", model.ReasonKeyZero, 2),
				peer("10.0.0.5", model.ReasonSourceNotAllowed, 1),
				peer("10.0.0.8", model.ReasonNotConfirmed, 2),
			},
		},
		{
			name: "egress without tunnel", program: toNetdev, change: withoutTunnel,
			packets: []Input{from("10.0.0.1", "10.0.0.2")},
			want:    []PeerCounter{peer("10.0.0.2", model.ReasonNoTunnel, 1)},
		},
		{
			name: "observe", program: toNetdev, change: observe,
			packets: []Input{from("10.0.0.1", "10.0.0.2")},
			want:    []PeerCounter{peer("10.0.0.2", model.ReasonWouldRedirect, 1)},
		},
		{
			name: "ingress", program: fromNetdev,
			packets: []Input{
				from("192.0.2.1", "10.0.0.1"), from("10.0.0.1", "10.0.0.1"), // nothing to see
				from("10.0.0.2", "10.0.0.1"), from("10.244.2.5", "10.244.1.5"),
				from("10.0.0.4", "10.0.0.1"), from("10.0.0.3", "10.0.0.1"),
			},
			want: []PeerCounter{
				peer("", model.ReasonNoPair, 1),
				peer("10.0.0.2", model.ReasonClearFromPeer, 2),
				peer("10.0.0.3", model.ReasonKeyZero, 1),
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			configure(t, d, situation{change: test.change}.config())
			for _, in := range test.packets {
				runKernel(t, d, test.program, in)
			}
			for i := range test.want {
				test.want[i].Program = test.program
			}
			got, err := peerCounters(probeOf(t, d, test.program, Input{}).collection.Maps[mapPeerReasons])
			if diff := cmp.Diff(test.want, got, cmp.Comparer(sameAddr)); diff != "" || err != nil {
				t.Errorf("counted by peer (-want +got), error %v:\n%s", err, diff)
			}
		})
	}
}

// TestCountersAreComplete: every counter that can be is there from the beginning, at zero.
func TestCountersAreComplete(t *testing.T) {
	d := open(t, Options{MaxAddresses: 1, MaxPrefixes: 1})
	got, err := d.Counters()
	if err != nil {
		t.Fatal(err)
	}
	var want []Counter
	for _, program := range model.Programs() {
		for _, reason := range model.Reasons() {
			for _, p := range reason.Programs() {
				if p == program {
					want = append(want, Counter{Program: program, Reason: reason})
				}
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
}
