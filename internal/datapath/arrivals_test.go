package datapath

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/datapath/model"
)

// monotonic is the time since boot, as the programs have it.
func monotonic(t testing.TB) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}

func (n *node) arrivals(t testing.TB) *Arrivals {
	t.Helper()
	arrivals, err := n.Arrivals()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = arrivals.Close() })
	return arrivals
}

// probeOfSize is a probe of that many bytes.
func probeOfSize(size int) []byte {
	return ipv6{src: "fe80:7761:7272:656e::5", dst: "fe80:7761:7272:656e::6", next: protoUDP}.wrap(udp(1, 2, strings.Repeat("p", size-48)))
}

// TestArrivals: the agent gets probes of any size, those that came while there was none first, and nobody
// else gets them.
func TestArrivals(t *testing.T) {
	everyMode(t, func(t *testing.T, mode AttachMode) {
		for _, ingress := range []model.Ingress{model.IngressUnderlay, model.IngressDevice} {
			t.Run(ingress.String(), func(t *testing.T) {
				n := newNode(t, mode)
				n.config.Ingress = ingress
				configure(t, n.Datapath, n.config)
				ip(t, "addr add fe80:7761:7272:656e::6/64 dev warren0 nodad")
				server := listenUDP(t, fmt.Sprintf("[fe80:7761:7272:656e::6%%%d]:2", n.config.TunnelIfindex))
				before := monotonic(t)
				n.tunnel.arrives(t, probeOfSize(48))
				n.start(t)
				arrivals := n.arrivals(t)
				for _, size := range []int{48, 167, 168, 1500, 60000} {
					if size != 48 {
						n.tunnel.arrives(t, probeOfSize(size))
					}
					got, err := arrivals.Read()
					if err != nil || got.Length != size || !bytes.Equal(got.Data, probeOfSize(size)[:min(size, 128)]) {
						t.Errorf("read %+v of %d bytes: %v", got, size, err)
					}
					if now := monotonic(t); got.Time < before || got.Time > now {
						t.Errorf("it came at %v, want between %v and %v", got.Time, before, now)
					}
				}
				if err := server.SetReadDeadline(time.Now().Add(silence)); err != nil {
					t.Fatal(err)
				}
				if got, err := server.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("a socket got a probe: %d %v", got, err)
				}
			})
		}
	})
}

// TestArrivalsClose: whoever waits is told.
func TestArrivalsClose(t *testing.T) {
	n := newNode(t, Clsact)
	arrivals := n.arrivals(t)
	problem := make(chan error, 1)
	go func() {
		_, err := arrivals.Read()
		problem <- err
	}()
	if err := arrivals.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-problem; !errors.Is(err, os.ErrClosed) {
		t.Errorf("error %v, want os.ErrClosed", err)
	}
}

// TestArrivalsOverflow: nobody reads, and then somebody does.
func TestArrivalsOverflow(t *testing.T) {
	const many = 3000
	n := newNode(t, Clsact)
	for range many {
		n.tunnel.arrives(t, probeOfSize(100))
	}
	n.waitFor(t, fromTunnel, model.ReasonProbe, many)
	arrivals := n.arrivals(t)
	for range 1000 {
		if _, err := arrivals.Read(); err != nil {
			t.Fatal(err)
		}
	}
	n.tunnel.arrives(t, probeOfSize(101))
	for {
		got, err := arrivals.Read()
		if err != nil {
			t.Fatal(err)
		}
		if got.Length == 101 {
			return
		}
	}
}

func TestArrivalRefusesHalfARecord(t *testing.T) {
	if got, err := arrivalOf(make([]byte, 143)); err == nil {
		t.Errorf("read %+v", got)
	}
}

// TestFirstFragment: what is noted is the size of first fragments of WireGuard datagrams from machines.
func TestFirstFragment(t *testing.T) {
	needRoot(t)
	d := openCluster(t)
	configure(t, d, testConfig())
	first4 := func(src string, from uint16, payload string, flags uint16) Input {
		return v4(ipv4{src: src, dst: "10.0.0.1", protocol: protoUDP, fragment: flags}.wrap(udp(from, 51880, payload)))
	}
	message := transportMessage + strings.Repeat("x", 1000)
	padded := first4("10.0.0.2", 1, message, flagMore)
	padded.Frame = append(padded.Frame, 0, 0, 0)
	size := 20 + 8 + len(message)
	tests := []struct {
		name, from string
		in         Input
		want       int
	}{
		{"first fragment", "10.0.0.2", first4("10.0.0.2", 1, message, flagMore), size},
		{"padded by the link", "10.0.0.2", padded, size},
		{"first fragment, IPv6", "fd00::2",
			v6(ipv6{src: "fd00::2", dst: "fd00::1", next: 44}.wrap(fragment6(protoUDP, 0, true, 7, udp(1, 51880, message)))), size + 28},
		{"behind a tag", "10.0.0.2", Input{Frame: tagged(typeIPv4, padded.Frame[14:], typeVLAN)}, size},
		{"whole", "10.0.0.2", first4("10.0.0.2", 1, message, 0), 0},
		{"later fragment", "10.0.0.2", first4("10.0.0.2", 1, message, 7), 0},
		{"not WireGuard", "10.0.0.2", first4("10.0.0.2", 1, "hello, world", flagMore), 0},
		{"from a pod", "10.244.2.5", first4("10.244.2.5", 1, message, flagMore), 0},
		{"from the world", "192.0.2.1", first4("192.0.2.1", 1, message, flagMore), 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			seen := probeOf(t, d, fromNetdev, test.in).collection.Maps[mapFragments]
			empty(t, seen)
			before := monotonic(t)
			runKernel(t, d, fromNetdev, test.in)
			got, at, ok, err := firstFragment(seen, netip.MustParseAddr(test.from))
			if got != test.want || ok != (test.want != 0) || err != nil {
				t.Errorf("%d bytes %v %v, want %d", got, ok, err, test.want)
			}
			if now := monotonic(t); ok && (at < before || at > now) {
				t.Errorf("at %v, want between %v and %v", at, before, now)
			}
		})
	}
	if _, _, ok, err := d.FirstFragment(netip.MustParseAddr("10.0.0.2")); ok || err != nil {
		t.Errorf("a packet that was only tried left a trace: %v %v", ok, err)
	}
}
