package wireguard_test

import (
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/wireguard/wgtest"
)

// soRcvMark asks for the mark of each packet, as a control message (Linux 5.19, asm-generic/socket.h).
const soRcvMark = 75

// markTap sees what leaves by a device, with its mark.
type markTap struct {
	fd   int
	port uint16 // of the sender
}

// tap starts to look at UDP packets from a port on the namespace's eth0.
func tap(t *testing.T, namespace *wgtest.Namespace, port uint16) markTap {
	t.Helper()
	m := markTap{port: port}
	namespace.Do(t, func() (err error) {
		link, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		every := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
		if m.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0); err != nil {
			return err
		}
		return errors.Join(
			unix.SetsockoptInt(m.fd, unix.SOL_SOCKET, soRcvMark, 1),
			unix.SetsockoptInt(m.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20),
			unix.Bind(m.fd, &unix.SockaddrLinklayer{Protocol: every, Ifindex: link.Index}))
	})
	t.Cleanup(func() { _ = unix.Close(m.fd) })
	return m
}

// marks counts what it has seen by mark, until nothing more comes.
func (m markTap) marks(t *testing.T) map[uint32]int {
	t.Helper()
	counts := map[uint32]int{}
	packet, control := make([]byte, 128), make([]byte, 256)
	for quiet := time.Now(); time.Since(quiet) < 300*time.Millisecond; {
		n, controlLen, _, from, err := unix.Recvmsg(m.fd, packet, control, 0)
		if errors.Is(err, unix.EAGAIN) {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		must(t, err)
		quiet = time.Now()
		if from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING && m.fromPort(packet[:n]) {
			counts[markOf(t, control[:controlLen])]++
		}
	}
	return counts
}

// fromPort: IPv4 without options, UDP.
func (m markTap) fromPort(packet []byte) bool {
	return len(packet) >= 28 && packet[0] == 0x45 && packet[9] == unix.IPPROTO_UDP && binary.BigEndian.Uint16(packet[20:]) == m.port
}

// markOf returns 0 for a packet without mark: the kernel then sends the message all the same.
func markOf(t *testing.T, control []byte) uint32 {
	t.Helper()
	messages, err := unix.ParseSocketControlMessage(control)
	must(t, err)
	for _, message := range messages {
		if message.Header.Level == unix.SOL_SOCKET && message.Header.Type == unix.SO_MARK {
			return binary.NativeEndian.Uint32(message.Data)
		}
	}
	t.Fatal("a packet came without its mark")
	return 0
}
