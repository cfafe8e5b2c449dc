package datapath

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"

	"warren/internal/datapath/model"
	"warren/internal/plan"
)

// attachment returns the attachment of a program on the node's devices.
func (n *node) attachment(t testing.TB, program model.Program) Attachment {
	t.Helper()
	attachments, err := n.Attachments()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(attachments, func(a Attachment) bool { return a.Program == program })
	if at < 0 {
		t.Fatalf("%v is not attached: %+v", program, attachments)
	}
	return attachments[at]
}

// places are the devices that programs are attached to.
func (n *node) places(t testing.TB) []string {
	t.Helper()
	attachments, err := n.Attachments()
	if err != nil {
		t.Fatal(err)
	}
	names := map[uint32]string{indexOf(t, "eth0"): "eth0", indexOf(t, "warren0"): "warren0"}
	var places []string
	for _, a := range attachments {
		places = append(places, a.Mode.String()+" "+a.Program.String()+" "+names[a.Ifindex])
	}
	slices.Sort(places)
	return places
}

func placesIn(mode AttachMode) []string {
	return []string{mode.String() + " from_netdev eth0", mode.String() + " from_tunnel warren0", mode.String() + " to_netdev eth0"}
}

func TestSyncAttachesAndDetaches(t *testing.T) {
	everyMode(t, func(t *testing.T, mode AttachMode) {
		n := newNode(t, mode)
		if diff := cmp.Diff(placesIn(mode), n.places(t)); diff != "" {
			t.Errorf("attached (-want +got):\n%s", diff)
		}
		if err := n.Sync(context.Background(), nil, [plan.Slots]uint32{}); err != nil {
			t.Fatal(err)
		}
		if got := n.places(t); got != nil {
			t.Errorf("attached without devices: %v", got)
		}
		if known, err := n.readUnderlays(); err != nil || len(known) != 0 {
			t.Errorf("underlays left in the map: %v %v", known, err)
		}
	})
}

// TestSyncChangesNothingTwice: the programs, and with TCX the links, stay the same.
func TestSyncChangesNothingTwice(t *testing.T) {
	everyMode(t, func(t *testing.T, mode AttachMode) {
		n := newNode(t, mode)
		before, err := n.Attachments()
		if err != nil {
			t.Fatal(err)
		}
		n.sync(t)
		configure(t, n.Datapath, n.config)
		after, err := n.Attachments()
		if diff := cmp.Diff(before, after); diff != "" || err != nil {
			t.Errorf("attachments (-before +after), error %v:\n%s", err, diff)
		}
	})
}

// TestTCXDriftIsHealed: whatever somebody does to the attachments, Sync puts them back.
func TestTCXDriftIsHealed(t *testing.T) {
	tests := []struct {
		name  string
		drift func(t *testing.T, n *node)
	}{
		{"link detached", func(t *testing.T, n *node) {
			l, err := link.LoadPinnedLink(n.pin(t, "to_netdev"), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if err := l.Detach(); err != nil {
				t.Fatal(err)
			}
		}},
		{"pin removed", func(t *testing.T, n *node) { remove(t, n.pin(t, "to_netdev")) }},
		{"all pins removed", func(t *testing.T, n *node) {
			if err := os.RemoveAll(filepath.Join(n.dir, linksFolder)); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(n.dir, linksFolder), 0o700); err != nil {
				t.Fatal(err)
			}
		}},
		{"move interrupted before the old link went", func(t *testing.T, n *node) { n.attachTwin(t) }},
		{"move interrupted after the old link went", func(t *testing.T, n *node) {
			n.attachTwin(t)
			if err := removePin(n.pin(t, "to_netdev")); err != nil {
				t.Fatal(err)
			}
		}},
		{"foreign files beside the pins", func(t *testing.T, n *node) {
			if err := os.Mkdir(filepath.Join(n.dir, linksFolder, "to_netdev-x"), 0o700); err != nil {
				t.Fatal(err)
			}
		}},
	}
	needTCX(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := newNode(t, TCX)
			test.drift(t, n)
			n.sync(t)
			if diff := cmp.Diff(placesIn(TCX), n.places(t)); diff != "" {
				t.Errorf("attached (-want +got):\n%s", diff)
			}
			// The kernel takes a link off some time after its last pin went.
			a := n.attachment(t, toNetdev)
			for limit := time.Now().Add(10 * time.Second); len(a.Before)+len(a.After) != 0 && time.Now().Before(limit); {
				time.Sleep(10 * time.Millisecond)
				a = n.attachment(t, toNetdev)
			}
			if len(a.Before)+len(a.After) != 0 {
				t.Errorf("beside to_netdev: %+v", a)
			}
			sendUDP(t, "10.0.0.1:0", "10.0.0.2:7", 0, "secret")
			n.inTunnel(t, 4, "secret")
		})
	}
}

func (n *node) pin(t testing.TB, program string) string {
	t.Helper()
	pins, err := filepath.Glob(filepath.Join(n.dir, linksFolder, program+"-*"))
	if err != nil || len(pins) == 0 {
		t.Fatalf("no pin of %s: %v", program, err)
	}
	return pins[0]
}

// attachTwin leaves what a move leaves that is interrupted.
func (n *node) attachTwin(t testing.TB) {
	t.Helper()
	twin, err := n.loadProgram(variant{program: toNetdev}, n.config)
	if err != nil {
		t.Fatal(err)
	}
	defer twin.Close()
	h := hook{program: toNetdev, ifindex: indexOf(t, "eth0")}
	hooks := n.hooks.(*tcx)
	l, err := hooks.attach(h, twin, hooks.pin(h)+nextSuffix)
	if err != nil {
		t.Fatal(err)
	}
	l.close()
}

func remove(t testing.TB, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func TestClsactDriftIsHealed(t *testing.T) {
	n := newNode(t, Clsact)
	n.control.removeClsact(t, indexOf(t, "eth0"))
	n.sync(t)
	if diff := cmp.Diff(placesIn(Clsact), n.places(t)); diff != "" {
		t.Errorf("attached (-want +got):\n%s", diff)
	}
}

// TestDeviceComesBack: a deleted device takes its attachments with it; their pins go with the next Sync.
func TestDeviceComesBack(t *testing.T) {
	everyMode(t, func(t *testing.T, mode AttachMode) {
		n := newNode(t, mode)
		old := indexOf(t, "eth0")
		ip(t, "link del eth0")
		if err := n.Sync(context.Background(), []Underlay{{Index: old, Name: "eth0", MAC: make([]byte, 6)}}, n.config.Tunnels); err == nil {
			t.Error("no error for a device that is gone")
		}
		ip(t, "link add eth0 type veth peer name wire")
		n.sync(t)
		if diff := cmp.Diff(placesIn(mode), n.places(t)); diff != "" {
			t.Errorf("attached (-want +got):\n%s", diff)
		}
		pins, err := os.ReadDir(filepath.Join(n.dir, linksFolder))
		if want := map[AttachMode]int{TCX: 3}[mode]; err != nil || len(pins) != want {
			t.Errorf("%d pins, want %d: %v %v", len(pins), want, pins, err)
		}
	})
}

// TestOneBadDeviceDoesNotStopTheOthers: everything else is attached, and the error names the device.
func TestOneBadDeviceDoesNotStopTheOthers(t *testing.T) {
	everyMode(t, func(t *testing.T, mode AttachMode) {
		n := newNode(t, mode)
		if err := n.Sync(context.Background(), nil, [plan.Slots]uint32{}); err != nil {
			t.Fatal(err)
		}
		bad := Underlay{Index: 4000, Name: "eth9", MAC: make([]byte, 6)}
		err := n.Sync(context.Background(), []Underlay{bad, underlayOf(t, "eth0")}, n.config.Tunnels)
		if err == nil {
			t.Fatal("no error")
		}
		if diff := cmp.Diff(placesIn(mode), n.places(t)); diff != "" {
			t.Errorf("attached, error %v (-want +got):\n%s", err, diff)
		}
	})
}

// TestTCXToClsactAndBack: what one way attached goes when the other has taken over.
func TestTCXToClsactAndBack(t *testing.T) {
	needTCX(t)
	n := newNode(t, TCX)
	f := startFlood(t, n)
	for _, mode := range []AttachMode{Clsact, TCX} {
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		n.options.Attach = mode
		n.start(t)
		if diff := cmp.Diff(placesIn(mode), n.places(t)); diff != "" {
			t.Errorf("attached (-want +got):\n%s", diff)
		}
		for _, other := range []attacher{newTCX(n.dir, n.logger), newClsact(n.options.Filters, n.logger)} {
			if other.mode() == mode {
				continue
			}
			if left, err := other.attached(); err != nil || len(left) != 0 {
				t.Errorf("left by %v: %v %v", other.mode(), left, err)
			}
		}
	}
	f.end(t, n)
}

// TestTCXInsistentNeighbour: a program that comes back to the place it was moved from has its way, and that
// is shown. Anything new is passed again.
func TestTCXInsistentNeighbour(t *testing.T) {
	needTCX(t)
	n := newNode(t, TCX)
	tests := []struct {
		name    string
		program model.Program
		at      ebpf.AttachType
		anchor  func() link.Anchor
		outside func(Attachment) []uint32
	}{
		{"behind on egress", toNetdev, ebpf.AttachTCXEgress, link.Tail, func(a Attachment) []uint32 { return a.After }},
		{"in front on ingress", fromNetdev, ebpf.AttachTCXIngress, link.Head, func(a Attachment) []uint32 { return a.Before }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			insistent := newProgram(t, nil)
			first := attachOther(t, "eth0", insistent, test.at, test.anchor())
			n.sync(t)
			if got := test.outside(n.attachment(t, test.program)); len(got) != 0 {
				t.Fatalf("the first time: %v", got)
			}
			if err := first.Detach(); err != nil {
				t.Fatal(err)
			}
			second := attachOther(t, "eth0", insistent, test.at, test.anchor())
			n.sync(t)
			n.sync(t)
			if got := test.outside(n.attachment(t, test.program)); len(got) != 1 {
				t.Fatalf("the second time: %v", got)
			}
			attachOther(t, "eth0", newProgram(t, nil), test.at, test.anchor())
			n.sync(t)
			if got := test.outside(n.attachment(t, test.program)); len(got) != 0 {
				t.Fatalf("with a new one: %v", got)
			}
			if err := second.Detach(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestSyncBeforeConfigure(t *testing.T) {
	d := open(t, Options{MaxAddresses: 1, MaxPrefixes: 1})
	if err := d.Sync(context.Background(), nil, [plan.Slots]uint32{}); err == nil || !strings.Contains(err.Error(), "not configured") {
		t.Errorf("error %v", err)
	}
}

func TestClsactNeedsFilters(t *testing.T) {
	if _, err := Open(Options{Dir: bpffs(t), Attach: Clsact}); !errors.Is(err, ErrNoFilters) {
		t.Errorf("error %v, want ErrNoFilters", err)
	}
}

func TestAttachModeText(t *testing.T) {
	for _, mode := range []AttachMode{Auto, TCX, Clsact} {
		text, err := mode.MarshalText()
		var back AttachMode
		if err != nil || back.UnmarshalText(text) != nil || back != mode {
			t.Errorf("%v came back as %v", mode, back)
		}
	}
	var mode AttachMode
	if err := mode.UnmarshalText([]byte("xdp")); err == nil || !strings.Contains(err.Error(), "clsact") {
		t.Errorf("error %v, want one with the choices", err)
	}
}

// TestCleanup: nothing is left, whatever is there to begin with, and it may be repeated.
func TestCleanup(t *testing.T) {
	tests := []struct {
		name    string
		prepare func(t *testing.T, n *node)
	}{
		{"all is well", func(*testing.T, *node) {}},
		{"the agent is gone", func(t *testing.T, n *node) { _ = n.Close() }},
		{"pins are missing", func(t *testing.T, n *node) { remove(t, filepath.Join(mapsFolder(n.dir), mapExact)) }},
		{"the links' folder is missing", func(t *testing.T, n *node) { _ = os.RemoveAll(filepath.Join(n.dir, linksFolder)) }},
		{"everything is missing", func(t *testing.T, n *node) { _ = os.RemoveAll(n.dir) }},
		{"the device is gone", func(t *testing.T, n *node) {
			ip(t, "link del eth0", "link add eth0 type veth peer name wire")
		}},
		{"maps of another version", func(t *testing.T, n *node) { _ = os.Mkdir(filepath.Join(n.dir, "maps-v9"), 0o700) }},
		{"a move was interrupted", func(t *testing.T, n *node) {
			if n.AttachMode() == TCX {
				n.attachTwin(t)
			}
		}},
	}
	everyMode(t, func(t *testing.T, mode AttachMode) {
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				n := newNode(t, mode)
				test.prepare(t, n)
				for range 2 {
					if err := Cleanup(n.dir, n.options.Filters, nil); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := os.Stat(n.dir); !os.IsNotExist(err) {
					t.Errorf("the folder of pins is still there: %v", err)
				}
				for _, device := range []string{"eth0", "warren0"} {
					assertBare(t, n, device)
				}
			})
		}
	})
}

// assertBare fails if a program is attached to the device in any way. A link whose pin was removed by
// other means than Cleanup lets go when the kernel gets round to freeing the file (RCU): that may take
// a moment on a busy machine.
func assertBare(t *testing.T, n *node, device string) {
	t.Helper()
	for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
		if !haveTCX() {
			break
		}
		query := link.QueryOptions{Target: int(indexOf(t, device)), Attach: at}
		result, err := link.QueryPrograms(query)
		// The kernel takes a link off some time after its last pin went.
		for limit := time.Now().Add(10 * time.Second); err == nil && len(result.Programs) != 0 && time.Now().Before(limit); {
			time.Sleep(10 * time.Millisecond)
			result, err = link.QueryPrograms(query)
		}
		if err != nil || len(result.Programs) != 0 {
			t.Errorf("%v of %s: %+v %v", at, device, result, err)
		}
	}
	for _, program := range model.Programs() {
		h := hook{program: program, ifindex: indexOf(t, device)}
		if _, found, err := n.options.Filters.Has(h.ifindex, h.egress(), filterName(h)); found || err != nil {
			t.Errorf("filter %v is still on %s: %v", program, device, err)
		}
	}
}

// TestCleanupLeavesOthersAlone: a folder with something else in it stays, and is named.
func TestCleanupLeavesOthersAlone(t *testing.T) {
	n := newNode(t, Clsact)
	foreign := filepath.Join(n.dir, "foreign")
	if err := os.Mkdir(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Cleanup(n.dir, n.options.Filters, nil); err == nil || !strings.Contains(err.Error(), n.dir) {
		t.Errorf("error %v, want one that names the folder", err)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Error(err)
	}
	assertBare(t, n, "eth0")
}
