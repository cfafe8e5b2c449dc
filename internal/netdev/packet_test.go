package netdev

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// testFrame is a broadcast Ethernet frame of a type for experiments (IEEE 802, 0x88b5).
var testFrame = append([]byte{
	0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
	0x02, 0, 0, 0, 0, 1,
	0x88, 0xb5,
}, "a frame that one end of a veth sends to the other"...)

// packetSocket sees every frame of a device.
func packetSocket(t *testing.T, ifindex uint32) int {
	t.Helper()
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xffff // in network byte order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	if err != nil {
		t.Fatalf("open a packet socket: %v", err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: int(ifindex), Protocol: all}); err != nil {
		t.Fatalf("bind the packet socket: %v", err)
	}
	return fd
}

// arrives says whether the test frame comes; other frames are passed over. One that is to come is waited for, one
// that is not for a moment.
func arrives(t *testing.T, socket int, want bool) bool {
	t.Helper()
	timeout := unix.Timeval{Usec: 300_000}
	if want {
		timeout = unix.Timeval{Sec: 10}
	}
	if err := unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		t.Fatal(err)
	}
	frame := make([]byte, 2048)
	for {
		length, _, err := unix.Recvfrom(socket, frame, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return false
		case errors.Is(err, unix.EINTR):
		case err != nil:
			t.Fatalf("receive: %v", err)
		case bytes.Equal(frame[:length], testFrame):
			return true
		}
	}
}
