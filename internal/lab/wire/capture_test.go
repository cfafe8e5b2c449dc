package wire

import (
	"fmt"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/lab/netns"
)

// TestCapture sends frames from two machines at a switch and sees each of them once, at the port by
// which it came.
func TestCapture(t *testing.T) {
	needRoot(t)
	prefix := fmt.Sprintf("warren-wire-test-%d-", os.Getpid())
	at, one, two := prefix+"switch", prefix+"one", prefix+"two"
	t.Cleanup(func() {
		for _, name := range []string{at, one, two} {
			_ = netns.Delete(name)
		}
	})
	build(t, at, one, two)
	capture, err := Listen(at, []string{"wire"}, Options{Cluster: twoNodes(), Magic: magic})
	if err != nil {
		t.Fatal(err)
	}
	const each = 50
	sends := []struct {
		namespace string
		marker    Marker
	}{{one, markerOf('1')}, {two, markerOf('2')}}
	for _, s := range sends {
		frame := ip(p1, p2, protoUDP, udp(5, 6, s.marker.Fill(64)))
		for range each {
			if err := netns.Do(s.namespace, func() error { return send(frame) }); err != nil {
				t.Fatal(err)
			}
		}
	}
	for deadline := time.Now().Add(5 * time.Second); len(capture.Saw(sends[0].marker))+len(capture.Saw(sends[1].marker)) < 2 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(time.Second) // frames that were sent on another processor may come after these
	frames, err := capture.Close()
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range sends {
		port := []string{"n1", "n2"}[i]
		var count int
		for _, frame := range frames {
			if slices.Contains(frame.Markers, s.marker) {
				count++
				if frame.Port != port || frame.Kind != Clear {
					t.Errorf("frame %+v, want one in clear at %s", frame, port)
				}
			}
		}
		if count != each {
			t.Errorf("%d frames sent at %s were seen %d times", each, port, count)
		}
	}
}

func build(t *testing.T, at, one, two string) {
	t.Helper()
	if err := netns.Create(t.Context(), at, one, two); err != nil {
		t.Fatal(err)
	}
	for _, script := range []netns.Script{
		{Namespace: at, Tool: "ip", Lines: []string{"link add wire type bridge mcast_snooping 0", "link set wire up"}},
		{Namespace: one, Tool: "ip", Lines: []string{"link add eth0 type veth peer name n1 netns " + at, "link set eth0 up"}},
		{Namespace: two, Tool: "ip", Lines: []string{"link add eth0 type veth peer name n2 netns " + at, "link set eth0 up"}},
		{Namespace: at, Tool: "ip", Lines: []string{"link set n1 master wire up", "link set n2 master wire up"}},
	} {
		if err := netns.Batch(t.Context(), script); err != nil {
			t.Fatal(err)
		}
	}
}

// send puts a frame on eth0 of the thread's namespace.
func send(frame []byte) error {
	link, err := net.InterfaceByName("eth0")
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: link.Index, Halen: 6})
}

// needRoot skips where namespaces cannot be made, and fails where they must be.
func needRoot(t *testing.T) {
	t.Helper()
	if unix.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("this test makes network namespaces and needs root")
	}
	t.Skip("needs root: makes network namespaces")
}
