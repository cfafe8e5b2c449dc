package model_test

import (
	"bytes"
	"encoding"
	"net/netip"
	"strings"
	"testing"

	"warren/internal/cluster"
	"warren/internal/datapath/model"
	"warren/internal/plan"
)

// text is what the configuration reads and writes.
type text interface {
	encoding.TextUnmarshaler
	encoding.TextMarshaler
	String() string
}

func TestNamesRoundTrip(t *testing.T) {
	tests := []struct {
		value text
		names []string
	}{
		{new(cluster.Mode), []string{"observe", "permissive", "strict"}},
		{new(model.Ingress), []string{"underlay", "device"}},
		{new(model.Oversize), []string{"auto", "fragment", "icmp"}},
	}
	for _, test := range tests {
		for _, name := range test.names {
			if err := test.value.UnmarshalText([]byte(name)); err != nil {
				t.Errorf("%q: %v", name, err)
			}
			if got, err := test.value.MarshalText(); string(got) != name || err != nil {
				t.Errorf("%q came back as %q: %v", name, got, err)
			}
		}
		before := test.value.String()
		err := test.value.UnmarshalText([]byte("else"))
		if err == nil || !strings.Contains(err.Error(), test.names[0]) || test.value.String() != before {
			t.Errorf("unknown name: %v (now %v), want an error with the choices", err, test.value)
		}
	}
	for _, got := range []string{cluster.Mode(9).String(), model.Ingress(9).String(), model.Oversize(9).String(), model.Verdict(9).String()} {
		if !strings.HasSuffix(got, "(9)") {
			t.Errorf("a number without name prints as %q", got)
		}
	}
}

// lookup knows a node, a peer, and a peer that is not to be encrypted to.
func lookup(addr netip.Addr) (plan.Entry, bool) {
	peer := plan.Entry{Endpoint: netip.MustParseAddr("10.0.0.2"), Key: 1, HasPair: true, Send: true}
	switch {
	case addr == netip.MustParseAddr("10.0.0.1"), addr == netip.MustParseAddr("fd00::1"):
		return plan.Entry{Flags: cluster.FlagLocal | cluster.FlagNode}, true
	case netip.MustParsePrefix("10.0.0.0/24").Contains(addr), netip.MustParsePrefix("fd00::/64").Contains(addr):
		return peer, true
	}
	return plan.Entry{}, false
}

// FuzzToNetdev holds any bytes against what must hold for every packet.
func FuzzToNetdev(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x08\x00\x45\x00\x00\x14\x00\x00\x00\x00\x40\x06\x00\x00\x0a\x00\x00\x01\x0a\x00\x00\x02"), uint32(0), false)
	f.Add([]byte("\x60\x00\x00\x00\x00\x00\x3a\xff\xfd\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\xfd\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x87"), uint32(0x10), true)
	f.Fuzz(func(t *testing.T, frame []byte, mark uint32, l3 bool) {
		before := bytes.Clone(frame)
		meta := model.Meta{Mark: mark, L3: l3}
		results := map[cluster.Mode]model.Result{}
		for _, mode := range []cluster.Mode{cluster.ModeObserve, cluster.ModePermissive, cluster.ModeStrict} {
			config := model.Config{Mark: 0x10, MarkMask: 0x10, Port: cluster.DefaultPort, Tunnels: [plan.Slots]uint32{9}, Mode: mode}
			results[mode] = model.ToNetdev(frame, meta, config, model.World{Lookup: lookup})
		}
		if !bytes.Equal(frame, before) {
			t.Error("the input was changed")
		}
		if r := results[cluster.ModeObserve]; r.Verdict != model.Pass || !bytes.Equal(r.Frame, before) || r.Mark != mark {
			t.Errorf("observe mode changes the packet: %+v", r)
		}
		checkStrict(t, frame, meta, results[cluster.ModeStrict])
		if p, s := results[cluster.ModePermissive], results[cluster.ModeStrict]; p.Verdict != s.Verdict && (p.Verdict != model.Pass || s.Verdict != model.Drop) {
			t.Errorf("permissive %v, strict %v", p.Verdict, s.Verdict)
		}
	})
}

// checkStrict: nothing leaves in clear for a peer.
func checkStrict(t *testing.T, frame []byte, meta model.Meta, r model.Result) {
	t.Helper()
	packet, unreadable := model.Parse(frame, meta)
	if unreadable != 0 || r.Verdict != model.Pass {
		return
	}
	entry, known := lookup(packet.Dst)
	exempt := r.Reason == model.ReasonEncrypted || r.Reason == model.ReasonNeighbourDiscovery
	if known && entry.Flags&cluster.FlagLocal == 0 && !exempt {
		t.Errorf("passes as %v to %v", r.Reason, packet.Dst)
	}
}
