package netdev

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ipv6Packet is an IPv6 packet of that many bytes for documentation addresses, without next header (59).
func ipv6Packet(size int) []byte {
	packet := make([]byte, size)
	packet[0], packet[6], packet[7] = 6<<4, 59, 1
	packet[4], packet[5] = byte((size-40)>>8), byte(size-40)
	copy(packet[8:], addrs("2001:db8::1")[0].AsSlice())
	copy(packet[24:], addrs("2001:db8::2")[0].AsSlice())
	for i := range packet[40:] {
		packet[40+i] = byte(i)
	}
	return packet
}

// openInjector returns a prepared TUN device and the way into it.
func openInjector(t *testing.T, n *Netdev, mtu int) (*os.File, *Injector) {
	t.Helper()
	tun := openTun(t, "warren0")
	link, err := n.Prepare("warren0", mtu)
	if err != nil {
		t.Fatal(err)
	}
	injector, err := OpenInjector(link.Index)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := injector.Close(); err != nil {
			t.Error(err)
		}
	})
	return tun, injector
}

// There is no address and no route, and with an MTU below 1280 the device has no IPv6 at all.
func TestInjectorSendsTheVeryBytes(t *testing.T) {
	for _, mtu := range []int{1440, 1200} {
		t.Run(fmt.Sprint("MTU ", mtu), func(t *testing.T) {
			tun, injector := openInjector(t, namespace(t), mtu)
			for _, size := range []int{40, 96, mtu} {
				packet := ipv6Packet(size)
				if err := injector.Send(packet); err != nil {
					t.Fatal(err)
				}
				if got := readPacket(t, tun); !bytes.Equal(got, packet) {
					t.Errorf("%d bytes came out as\n% x\nwant\n% x", size, got, packet)
				}
			}
		})
	}
}

func readPacket(t *testing.T, tun *os.File) []byte {
	t.Helper()
	if err := tun.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	packet := make([]byte, 2048)
	length, err := tun.Read(packet)
	if err != nil {
		t.Fatalf("nothing came out: %v", err)
	}
	return packet[:length]
}

func TestInjectorErrors(t *testing.T) {
	n := namespace(t)
	tun, injector := openInjector(t, n, 1408)
	if err := injector.Send(ipv6Packet(1409)); !errors.Is(err, unix.EMSGSIZE) {
		t.Errorf("one byte more than the MTU: %v, want %v", err, unix.EMSGSIZE)
	}
	if err := n.handle.LinkSetDown(n.raw(t, "warren0")); err != nil {
		t.Fatal(err)
	}
	if err := injector.Send(ipv6Packet(96)); !errors.Is(err, unix.ENETDOWN) {
		t.Errorf("device down: %v, want %v", err, unix.ENETDOWN)
	}
	if err := n.SetUp("warren0"); err != nil {
		t.Fatal(err)
	}
	if err := injector.Send(ipv6Packet(96)); err != nil {
		t.Errorf("device up again: %v", err)
	}
	readPacket(t, tun)
	if err := n.Delete("warren0"); err != nil {
		t.Fatal(err)
	}
	if err := injector.Send(ipv6Packet(96)); !errors.Is(err, unix.ENXIO) && !errors.Is(err, unix.ENODEV) {
		t.Errorf("device gone: %v, want %v or %v", err, unix.ENXIO, unix.ENODEV)
	}
}

// A socket that received would pile up what nobody reads.
func TestInjectorReceivesNothing(t *testing.T) {
	n := namespace(t)
	tun, injector := openInjector(t, n, 1440)
	if _, err := tun.Write(ipv6Packet(96)); err != nil {
		t.Fatal(err)
	}
	if err := injector.Send(ipv6Packet(96)); err != nil {
		t.Fatal(err)
	}
	readPacket(t, tun)
	if _, _, err := unix.Recvfrom(injector.fd, make([]byte, 1), unix.MSG_DONTWAIT); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("receive: %v, want %v", err, unix.EAGAIN)
	}
}
