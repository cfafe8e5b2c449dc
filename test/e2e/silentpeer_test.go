package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/discovery/dir"
	"warren/internal/discovery/record"
	"warren/internal/lab/netns"
	"warren/internal/lab/wire"
)

// answerLimit is how long an answer may take.
const answerLimit = 10 * time.Second

// TestSilentPeerStaysEncrypted: a peer whose agent is dead answers no question, but goes on encrypting. Whoever forges the
// beginning of connections in its name gets an answer in clear, but none that belongs to a connection of the peer's.
func TestSilentPeerStaysEncrypted(t *testing.T) {
	t.Parallel()
	c := up(t, "silentpeer", "--nodes", "2", "--pods", "1", "--mode", "strict")
	n1, n2 := c.node("n1"), c.node("n2")
	server, client := netip.AddrPortFrom(n1.Addresses[0], apiPort), n2.Addresses[0]
	write(t, filepath.Join(filepath.Dir(c.open().RecordPath("n1")), dir.APIServerFile), record.MarshalAPIServers([]netip.AddrPort{server}))
	acceptEach(t, n1.Namespace, server, func(connection net.Conn) { _, _ = io.Copy(connection, connection) })
	const running, forged, later = 40001, 40002, 40003
	forge := func(port uint16) {
		t.Helper()
		syn := summedSYN(netip.AddrPortFrom(client, port), server)
		if err := netns.Do(n2.Namespace, func() error { return sendPast("eth0", n1.Namespace, syn) }); err != nil {
			t.Fatal(err)
		}
	}
	talk := dialFrom(t, n2.Namespace, netip.AddrPortFrom(client, running), server)
	capture := watchWire(t, c)

	c.must("agent", "kill", "n2")
	eventually(t, lostTime, "n1 hears nothing of n2", func() bool { return stateOf(c, "n1", "n2") == "stale" })
	talk()
	refused := c.came("n1", "clear_from_peer")
	forge(running)
	eventually(t, 10*time.Second, "the forged beginning of the running connection is refused", func() bool { return c.came("n1", "clear_from_peer") > refused })
	talk()
	explained(t, c, client, server, "bootstrap")
	explained(t, c, client, netip.AddrPortFrom(server.Addr(), otherPort), "clear_from_peer")
	forge(forged)
	eventually(t, 10*time.Second, "a forged connection is answered", func() bool { return c.reason("n1", "bootstrap") > 0 })
	dialFrom(t, n2.Namespace, netip.AddrPortFrom(client, forged), server)()
	talk()

	c.must("agent", "start", "n2")
	eventually(t, lostTime, "n1 hears n2 again", func() bool { return stateOf(c, "n1", "n2") == "confirmed" })
	refused = c.came("n1", "clear_from_peer")
	explained(t, c, client, server, "clear_from_peer")
	forge(later)
	eventually(t, 10*time.Second, "it is refused again", func() bool { return c.came("n1", "clear_from_peer") > refused })
	talk()

	frames, err := capture.Close()
	if err != nil {
		t.Fatal(err)
	}
	answers := map[netip.AddrPort]int{}
	for _, frame := range frames {
		if frame.Kind == wire.Clear && frame.Port == "n1" {
			answers[frame.Flow.Destination]++
		}
	}
	// The SYN-ACK, and what TCP sends again until the reset from n2, which never asked, has come.
	if count := answers[netip.AddrPortFrom(client, forged)]; len(answers) != 1 || count == 0 || count > 5 {
		t.Errorf("n1 answered in clear to %v; want a few frames to port %d alone", answers, forged)
	}
}

// explained checks what n1 says of the beginning of a connection that comes in: model and program agree, or the command
// fails.
func explained(t *testing.T, c *testLab, client netip.Addr, server netip.AddrPort, reason string) {
	t.Helper()
	said := c.mustExec("n1", warren, "explain", client.String(), server.Addr().String(), "--port", fmt.Sprint(server.Port()))
	if !strings.Contains(said, " "+reason+"\n") {
		t.Errorf("want the reason %s:\n%s", reason, said)
	}
}

// came returns how many packets left a node's from_netdev for a reason.
func (c *testLab) came(node, name string) (packets uint64) {
	for _, reason := range c.status(node).Reasons {
		if reason.Program == "from_netdev" && reason.Reason == name {
			packets += reason.Packets
		}
	}
	return packets
}

// dialFrom connects from an address and port. What it returns says something on the connection and expects it back.
func dialFrom(t *testing.T, namespace string, from, to netip.AddrPort) (talk func()) {
	t.Helper()
	var connection net.Conn
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(from), Timeout: answerLimit}
	err := netns.Do(namespace, func() (err error) {
		connection, err = dialer.Dial("tcp", to.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return func() {
		t.Helper()
		said, answer := []byte("said"), make([]byte, 4)
		deadlineErr := connection.SetDeadline(time.Now().Add(answerLimit))
		_, writeErr := connection.Write(said)
		_, readErr := io.ReadFull(connection, answer)
		if err := errors.Join(deadlineErr, writeErr, readErr); err != nil || !slices.Equal(said, answer) {
			t.Fatalf("on the connection from port %d: %q, %v", from.Port(), answer, err)
		}
	}
}

// summedSYN is an IPv4 packet that begins a connection.
func summedSYN(from, to netip.AddrPort) []byte {
	segment := binary.BigEndian.AppendUint16(nil, from.Port())
	segment = binary.BigEndian.AppendUint16(segment, to.Port())
	segment = append(segment, 1, 2, 3, 4, 0, 0, 0, 0, 0x50, 0x02, 0x10, 0, 0, 0, 0, 0)
	ends := slices.Concat(from.Addr().AsSlice(), to.Addr().AsSlice())
	binary.BigEndian.PutUint16(segment[16:], internetChecksum(slices.Concat(ends, []byte{0, unix.IPPROTO_TCP, 0, 20}, segment)))
	packet := slices.Concat([]byte{0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, unix.IPPROTO_TCP, 0, 0}, ends)
	binary.BigEndian.PutUint16(packet[10:], internetChecksum(packet))
	return append(packet, segment...)
}

// internetChecksum is RFC 1071's, of an even number of bytes.
func internetChecksum(data []byte) uint16 {
	sum := uint32(0)
	for pair := range slices.Chunk(data, 2) {
		sum += uint32(binary.BigEndian.Uint16(pair))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// sendPast sends an IPv4 packet by a device to the same device of another namespace, past the programs on its egress.
func sendPast(device, namespace string, packet []byte) error {
	var own, other *net.Interface
	own, err := net.InterfaceByName(device)
	if err != nil {
		return fmt.Errorf("find the device: %w", err)
	}
	err = netns.Do(namespace, func() (err error) {
		other, err = net.InterfaceByName(device)
		return err
	})
	if err != nil {
		return fmt.Errorf("find the device in %s: %w", namespace, err)
	}
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a packet socket: %w", err)
	}
	defer unix.Close(socket)
	if err := unix.SetsockoptInt(socket, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return fmt.Errorf("set the bypass: %w", err)
	}
	frame := slices.Concat(other.HardwareAddr, own.HardwareAddr, []byte{0x08, 0}, packet)
	return unix.Sendto(socket, frame, 0, &unix.SockaddrLinklayer{Ifindex: own.Index})
}
