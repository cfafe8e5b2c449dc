package netdev

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
)

// ensureWireGuard skips where the kernel has no WireGuard, after holding the driver to saying so.
func ensureWireGuard(t *testing.T, n *Netdev, name string, mtu int) Link {
	t.Helper()
	link, err := n.EnsureWireGuard(name, mtu)
	// Only now: the attempt may have made the kernel load its module.
	if _, missing := os.Stat("/sys/module/wireguard"); missing != nil {
		if !errors.Is(err, ErrUnsupported) {
			t.Fatalf("EnsureWireGuard without WireGuard in the kernel: %v, want %v", err, ErrUnsupported)
		}
		t.Skip("this kernel has no WireGuard; EnsureWireGuard said so")
	}
	if err != nil {
		t.Fatal(err)
	}
	return link
}

func TestEnsureWireGuard(t *testing.T) {
	n := namespace(t)
	first := ensureWireGuard(t, n, "warren0", 1420)
	want := Link{Index: first.Index, Name: "warren0", Kind: "wireguard", MTU: 1420, L3: true, Up: true}
	if diff := cmp.Diff(want, first, equateNetip); diff != "" {
		t.Errorf("created device (-want +got):\n%s", diff)
	}
	again := ensureWireGuard(t, n, "warren0", 1440)
	want.MTU = 1440
	if diff := cmp.Diff(want, again, equateNetip); diff != "" {
		t.Errorf("the same device with another MTU (-want +got):\n%s", diff)
	}
	if link := n.link(t, "warren0"); len(link.Addrs) > 0 {
		t.Errorf("warren0 has addresses %v, want none", link.Addrs)
	}
}

func TestEnsureWireGuardLeavesOtherKindsAlone(t *testing.T) {
	n := namespace(t)
	n.addVeth(t, "warren0", "peer0")
	before := n.link(t, "warren0")
	_, err := n.EnsureWireGuard("warren0", 1420)
	if !errors.Is(err, ErrOtherKind) {
		t.Fatalf("error %v, want %v", err, ErrOtherKind)
	}
	for _, part := range []string{"warren0 is a veth device", "ip link delete warren0"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
	linkLocal := cmpopts.IgnoreFields(Link{}, "Addrs") // the kernel adds one in its own time
	if diff := cmp.Diff(before, n.link(t, "warren0"), equateNetip, linkLocal); diff != "" {
		t.Errorf("the veth was changed (-before +after):\n%s", diff)
	}
}

func TestPrepare(t *testing.T) {
	n := namespace(t)
	openTun(t, "warren0")
	for _, mtu := range []int{1440, 1440, 1408, 1200} { // below 1280 the device has no IPv6 at all
		got, err := n.Prepare("warren0", mtu)
		if err != nil {
			t.Fatalf("prepare with MTU %d: %v", mtu, err)
		}
		want := Link{Index: got.Index, Name: "warren0", Kind: "tun", MTU: mtu, L3: true, Up: true}
		if diff := cmp.Diff(want, got, equateNetip); diff != "" {
			t.Errorf("prepared device (-want +got):\n%s", diff)
		}
	}
	if raw, err := n.find("warren0"); err != nil || raw.Attrs().TxQLen != tunQueue {
		t.Errorf("queue of %d packets, %v, want %d", raw.Attrs().TxQLen, err, tunQueue)
	}
}

// An agent prepares its device again whenever a device changes; if that changed anything, it would
// never rest.
func TestPrepareAgainNotifiesNobody(t *testing.T) {
	n := namespace(t)
	openTun(t, "warren0")
	if _, err := n.Prepare("warren0", 1440); err != nil {
		t.Fatal(err)
	}
	changes, err := n.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	quiet(t, changes, failurePause+5*settle)
	if _, err := n.Prepare("warren0", 1440); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changes:
		t.Error("preparing a device that is prepared notified the watch")
	case <-time.After(10 * settle):
	}
}

// A TUN device with a carrier is given a link-local address and speaks; a prepared one is silent.
func TestPrepareKeepsDeviceQuiet(t *testing.T) {
	n := namespace(t)
	noisy, silent := openTun(t, "noisy0"), openTun(t, "warren0")
	if _, err := n.Prepare("warren0", 1420); err != nil {
		t.Fatal(err)
	}
	if err := n.SetUp("noisy0"); err != nil {
		t.Fatal(err)
	}
	packet := make([]byte, 2048)
	if err := noisy.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := noisy.Read(packet); err != nil {
		t.Fatalf("the control is void, nothing was sent on noisy0: %v", err)
	}
	if err := silent.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if length, err := silent.Read(packet); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("sent on warren0: % x (%v)", packet[:length], err)
	}
	if link := n.link(t, "warren0"); len(link.Addrs) > 0 {
		t.Errorf("warren0 has addresses %v, want none", link.Addrs)
	}
}

func TestDelete(t *testing.T) {
	n := namespace(t)
	n.addVeth(t, "eth0", "wire")
	n.add(t, &netlink.Tuntap{LinkAttrs: attrs("warren0"), Mode: netlink.TUNTAP_MODE_TUN})
	for range 2 { // the second time there is nothing to delete
		if err := n.Delete("warren0"); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	if err := n.Delete("eth0"); !errors.Is(err, ErrOtherKind) {
		t.Errorf("delete of the underlay: %v, want %v", err, ErrOtherKind)
	}
	links, err := n.Links()
	if err != nil {
		t.Fatal(err)
	}
	want := []Link{{Name: "lo"}, {Name: "wire"}, {Name: "eth0"}}
	names := cmp.FilterPath(func(p cmp.Path) bool { return len(p) == 2 && p.Last().String() != ".Name" }, cmp.Ignore())
	if diff := cmp.Diff(want, links, cmpopts.SortSlices(func(a, b Link) bool { return a.Name < b.Name }), names); diff != "" {
		t.Errorf("links that are left (-want +got):\n%s", diff)
	}
}

func TestMissingDevice(t *testing.T) {
	n := namespace(t)
	_, prepare := n.Prepare("warren0", 1420)
	for name, err := range map[string]error{"Prepare": prepare, "SetMTU": n.SetMTU("warren0", 1420), "SetUp": n.SetUp("warren0")} {
		if !errors.Is(err, ErrNoLink) {
			t.Errorf("%s: %v, want %v", name, err, ErrNoLink)
		}
	}
}
