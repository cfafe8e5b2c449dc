package netdev

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestChoose(t *testing.T) {
	bpf := func(name string, priority uint16, handle uint32) Filter {
		return Filter{Kind: "bpf", Name: name, slot: slot{priority: priority, protocol: unix.ETH_P_ALL, handle: handle}}
	}
	flower := func(priority uint16) Filter {
		return Filter{Kind: "flower", slot: slot{priority: priority, protocol: unix.ETH_P_IP, handle: 1}}
	}
	at := func(priority uint16, handle uint32) slot {
		return slot{priority: priority, protocol: unix.ETH_P_ALL, handle: handle}
	}
	ipOnly := bpf("ip-only", 1, 1)
	ipOnly.protocol = unix.ETH_P_IP
	otherChain := bpf("other-chain", 1, 1)
	otherChain.chain = 7

	tests := []struct {
		name   string
		there  []Filter
		egress bool
		added  bool
		want   slot
	}{
		{name: "ingress, nothing there", want: at(1, handleBase)},
		{name: "egress, nothing there", egress: true, want: at(0xffff, handleBase)},
		{name: "the qdisc is ours", added: true, want: at(1, handleBase|addedClsact)},
		{name: "it is there already", there: []Filter{flower(1), bpf("ours", 2, handleBase)}, added: true, want: at(2, handleBase)},
		{name: "ingress behind nobody: BPF filters share a priority", there: []Filter{bpf("cil_from_netdev", 1, 1)}, want: at(1, handleBase)},
		{name: "ingress, filters of the kernel's choice", there: []Filter{flower(0xbfff), flower(0xc000)}, want: at(1, handleBase)},
		{name: "ingress, the first priority cannot be shared", there: []Filter{flower(1)}, want: at(2, handleBase)},
		{name: "ingress, BPF of one protocol cannot be shared", there: []Filter{ipOnly}, want: at(2, handleBase)},
		{name: "ingress, another chain is no obstacle", there: []Filter{otherChain}, want: at(1, handleBase)},
		{name: "ingress, another filter of ours", there: []Filter{bpf("other", 1, handleBase|addedClsact)}, added: true,
			want: at(1, (handleBase+handleStep)|addedClsact)},
		{name: "ingress, the handles of a priority have run out", there: []Filter{bpf("other", 1, handleBase|0xfe)}, want: at(2, handleBase)},
		{name: "egress, others before it", there: []Filter{bpf("cil_to_netdev", 1, 1), flower(0xc000)}, egress: true, want: at(0xffff, handleBase)},
		{name: "egress, the last priority is taken", there: []Filter{flower(0xfffe), bpf("theirs", 0xffff, 1)}, egress: true, want: at(0xfffd, handleBase)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := choose(test.there, test.egress, "ours", test.added)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(slot{})); diff != "" {
				t.Errorf("place (-want +got):\n%s", diff)
			}
		})
	}
}
