package netdev

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	unspec = -1 // TC_ACT_UNSPEC: the next filter decides
	pass   = 0  // TC_ACT_OK
	drop   = 2  // TC_ACT_SHOT
)

// filtered is a veth end, by its index, in a namespace of its own.
func filtered(t *testing.T) (*Netdev, uint32) {
	t.Helper()
	n := namespace(t)
	return n, n.addVeth(t, "eth0", "wire").Index
}

// show lists the filters of all devices in the order in which they run: "egress ours".
func show(t *testing.T, n *Netdev) []string {
	t.Helper()
	filters, err := n.FiltersNamed("")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, filter := range filters {
		lines = append(lines, strings.TrimSpace(direction(filter.Egress)+" "+filter.Name))
	}
	return lines
}

func hasClsact(t *testing.T, n *Netdev, ifindex uint32) bool {
	t.Helper()
	qdiscs, err := n.handle.QdiscList(device(ifindex))
	if err != nil {
		t.Fatal(err)
	}
	for _, qdisc := range qdiscs {
		if isClsact(qdisc) {
			return true
		}
	}
	return false
}

// foreign attaches a BPF filter as somebody else would.
func foreign(t *testing.T, n *Netdev, ifindex uint32, egress bool, priority uint16, name string) {
	t.Helper()
	filter := slot{priority: priority, protocol: unix.ETH_P_ALL, handle: 1}.filter(ifindex, egress)
	filter.Fd, filter.Name, filter.DirectAction = loadProgram(t, unspec).fd, name, true
	if err := n.handle.FilterAdd(filter); err != nil {
		t.Fatalf("attach %s: %v", name, err)
	}
}

func TestFiltersReplaceAndRemove(t *testing.T) {
	n, eth0 := filtered(t)
	filters := n.Filters()
	first, second := loadProgram(t, pass), loadProgram(t, pass)

	check := func(when string, egress bool, want uint32) {
		t.Helper()
		id, found, err := filters.Has(eth0, egress, "warren_x")
		if err != nil || id != want || found != (want != 0) {
			t.Errorf("%s: Has(%s) = %d, %v, %v, want program %d", when, direction(egress), id, found, err, want)
		}
	}
	check("before", false, 0)
	for _, p := range []program{first, first, second} {
		if err := filters.Replace(eth0, false, p.fd, "warren_x"); err != nil {
			t.Fatal(err)
		}
		check("after Replace", false, p.id)
		check("after Replace, the other side", true, 0)
	}
	if err := filters.Replace(eth0, true, first.fd, "warren_x"); err != nil {
		t.Fatal(err)
	}
	check("on both sides", true, first.id)
	if diff := cmp.Diff([]string{"ingress warren_x", "egress warren_x"}, show(t, n)); diff != "" {
		t.Errorf("filters (-want +got):\n%s", diff)
	}

	for _, egress := range []bool{false, false, true, true} { // each a second time, for nothing
		if !hasClsact(t, n, eth0) && !egress {
			t.Errorf("the qdisc is gone while a filter is on it")
		}
		if err := filters.Remove(eth0, egress, "warren_x"); err != nil {
			t.Fatal(err)
		}
		check("after Remove", egress, 0)
	}
	if hasClsact(t, n, eth0) {
		t.Error("the qdisc that Replace added is still there")
	}
}

func TestFiltersKeepTheirPlaceAmongOthers(t *testing.T) {
	n, eth0 := filtered(t)
	if err := n.handle.QdiscAdd(clsact(eth0)); err != nil {
		t.Fatal(err)
	}
	for _, egress := range []bool{false, true} {
		foreign(t, n, eth0, egress, 1, "theirs_1")
		foreign(t, n, eth0, egress, 0xc000, "theirs_2")
	}
	for range 2 { // the second time in place
		for _, egress := range []bool{false, true} {
			if err := n.Filters().Replace(eth0, egress, loadProgram(t, unspec).fd, "ours"); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{"ingress ours", "ingress theirs_1", "ingress theirs_2", "egress theirs_1", "egress theirs_2", "egress ours"}
		if diff := cmp.Diff(want, show(t, n)); diff != "" {
			t.Errorf("filters with ours (-want +got):\n%s", diff)
		}
	}
	for _, egress := range []bool{false, true} {
		if err := n.Filters().Remove(eth0, egress, "ours"); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"ingress theirs_1", "ingress theirs_2", "egress theirs_1", "egress theirs_2"}
	if diff := cmp.Diff(want, show(t, n)); diff != "" {
		t.Errorf("filters without ours (-want +got):\n%s", diff)
	}
}

func TestFiltersRemoveOnlyTheirOwnClsact(t *testing.T) {
	tests := []struct {
		name   string
		theirs bool // the qdisc was there before
		joined bool // somebody put a filter on our qdisc
		want   bool
	}{
		{name: "ours and empty", want: false},
		{name: "ours, used by others", joined: true, want: true},
		{name: "of others and empty", theirs: true, want: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n, eth0 := filtered(t)
			if test.theirs {
				if err := n.handle.QdiscAdd(clsact(eth0)); err != nil {
					t.Fatal(err)
				}
			}
			if err := n.Filters().Replace(eth0, true, loadProgram(t, pass).fd, "ours"); err != nil {
				t.Fatal(err)
			}
			if test.joined {
				foreign(t, n, eth0, false, 1, "theirs")
			}
			// Another process removes it: what it knows is in the kernel.
			other, err := Open()
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			if err := other.Filters().Remove(eth0, true, "ours"); err != nil {
				t.Fatal(err)
			}
			if got := hasClsact(t, n, eth0); got != test.want {
				t.Errorf("clsact after Remove: %v, want %v", got, test.want)
			}
		})
	}
}

// The filter decides about packets: with a program that drops, nothing reaches the other end.
func TestFiltersTakeEffect(t *testing.T) {
	n, eth0 := filtered(t)
	socket := packetSocket(t, n.link(t, "wire").Index)
	send := func(want bool) bool {
		t.Helper()
		if err := unix.Sendto(packetSocket(t, eth0), testFrame, 0, &unix.SockaddrLinklayer{Ifindex: int(eth0)}); err != nil && !errors.Is(err, unix.ENOBUFS) {
			t.Fatalf("send: %v", err) // ENOBUFS is how a packet socket hears of the drop
		}
		return arrives(t, socket, want)
	}
	if !send(true) {
		t.Fatal("the control is void: nothing arrives without a filter")
	}
	for _, step := range []struct {
		name    string
		verdict int32
		want    bool
	}{{"pass", pass, true}, {"drop", drop, false}, {"pass again", pass, true}} {
		if err := n.Filters().Replace(eth0, true, loadProgram(t, step.verdict).fd, "ours"); err != nil {
			t.Fatal(err)
		}
		if got := send(step.want); got != step.want {
			t.Errorf("%s: arrived %v, want %v", step.name, got, step.want)
		}
	}
}

func TestFiltersNamed(t *testing.T) {
	n, eth0 := filtered(t)
	wire := n.link(t, "wire").Index
	program := loadProgram(t, pass)
	for _, ifindex := range []uint32{eth0, wire} {
		if err := n.Filters().Replace(ifindex, true, program.fd, "warren_to_netdev"); err != nil {
			t.Fatal(err)
		}
		foreign(t, n, ifindex, false, 1, "theirs")
	}
	got, err := n.FiltersNamed("warren_")
	if err != nil {
		t.Fatal(err)
	}
	want := []Filter{
		{Ifindex: min(eth0, wire), Egress: true, Kind: "bpf", Name: "warren_to_netdev", ProgID: program.id},
		{Ifindex: max(eth0, wire), Egress: true, Kind: "bpf", Name: "warren_to_netdev", ProgID: program.id},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Filter{})); diff != "" {
		t.Errorf("filters (-want +got):\n%s", diff)
	}
}

func TestFiltersErrors(t *testing.T) {
	n, eth0 := filtered(t)
	program := loadProgram(t, pass)
	ingress := &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: int(eth0), Parent: netlink.HANDLE_INGRESS, Handle: netlink.MakeHandle(0xffff, 0)}}
	if err := n.handle.QdiscAdd(ingress); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		err  error
		want []string
	}{
		{"a device with the old ingress qdisc", n.Filters().Replace(eth0, true, program.fd, "ours"), []string{"attach ours to egress", "ingress qdisc", "clsact"}},
		{"a device that is not there", n.Filters().Replace(9999, true, program.fd, "ours"), []string{"attach ours to egress of device 9999", "no such device"}},
		{"something that is not a program", n.Filters().Replace(n.link(t, "wire").Index, true, 0, "ours"), []string{"attach ours"}},
		{"removing from a device that is not there", n.Filters().Remove(9999, true, "ours"), nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { checkError(t, test.err, test.want) })
	}
}
