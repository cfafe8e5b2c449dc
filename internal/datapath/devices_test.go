package datapath

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ip runs commands of ip in the namespace of the tests.
func ip(t testing.TB, commands ...string) {
	t.Helper()
	command := exec.Command("ip", "-batch", "-")
	command.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("ip: %v\n%s\n%s", err, strings.Join(commands, "\n"), output)
	}
}

func interfaceOf(t testing.TB, name string) *net.Interface {
	t.Helper()
	device, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return device
}

func indexOf(t testing.TB, name string) uint32 { return uint32(interfaceOf(t, name).Index) }

func underlayOf(t testing.TB, name string) Underlay {
	t.Helper()
	device := interfaceOf(t, name)
	return Underlay{Index: uint32(device.Index), Name: name, MAC: device.HardwareAddr, L3: len(device.HardwareAddr) == 0}
}

// wire makes the node's device eth0 and the other end of its cable, which plays the rest of the world:
//
//	sockets ── eth0 (10.0.0.1/24 fd00::1/64) ═══ wire (captured)
//	              └─ 10.244.2.0/24 via 10.0.0.2
//
// 10.0.0.2 and fd00::2 have a fixed hardware address that nobody owns.
func wire(t testing.TB) {
	t.Helper()
	needRoot(t)
	ip(t, "link set lo up",
		"link add eth0 type veth peer name wire",
		"link set eth0 addrgenmode none", "link set wire addrgenmode none",
		"addr add 10.0.0.1/24 dev eth0", "addr add fd00::1/64 dev eth0 nodad",
		"link set eth0 up", "link set wire up",
		"neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev eth0",
		"neigh add fd00::2 lladdr 02:00:00:00:00:02 dev eth0",
		"route add 10.244.2.0/24 via 10.0.0.2")
	t.Cleanup(func() { ip(t, "link del eth0") })
}

// tunDevice is a layer 3 device whose other end is the test, as WireGuard in userspace has one.
type tunDevice struct {
	*os.File
	name string
}

func newTUN(t testing.TB, name string) tunDevice {
	t.Helper()
	needRoot(t)
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open /dev/net/tun: %v", err)
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		t.Fatal(err)
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		t.Fatalf("create device %s: %v", name, err)
	}
	device := tunDevice{os.NewFile(uintptr(fd), name), name}
	t.Cleanup(func() { _ = device.Close() })
	ip(t, "link set "+name+" addrgenmode none", "link set "+name+" mtu 65535 up")
	return device
}

// patience is how long a packet that must come may take on a busy machine, and silence how long
// one that must not come is waited for.
const (
	patience = 10 * time.Second
	silence  = 200 * time.Millisecond
)

// next returns the next packet that is sent out of the device; nil if none comes.
func (d tunDevice) next(t testing.TB, wait time.Duration) []byte {
	t.Helper()
	if err := d.SetReadDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 1<<16)
	n, err := d.Read(buffer)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	if err != nil {
		t.Fatalf("read from %s: %v", d.name, err)
	}
	return buffer[:n]
}

// nextOf returns the next packet of that many bytes; nil if none comes.
func (d tunDevice) nextOf(t testing.TB, wait time.Duration, size int) []byte {
	t.Helper()
	for {
		if packet := d.next(t, wait); packet == nil || len(packet) == size {
			return packet
		}
	}
}

// drain reads and drops what there is, until the device is closed.
func (d tunDevice) drain() {
	_ = d.SetReadDeadline(time.Time{})
	buffer := make([]byte, 1<<16)
	for {
		if _, err := d.Read(buffer); err != nil {
			return
		}
	}
}

func (d tunDevice) arrives(t testing.TB, packet []byte) {
	t.Helper()
	if _, err := d.Write(packet); err != nil {
		t.Fatalf("write to %s: %v", d.name, err)
	}
}

// packetSocket sees and sends whole frames of one device.
type packetSocket struct {
	fd      int
	ifindex int
}

// listen opens a packet socket; protocol 0 only sends.
func listen(t testing.TB, device string, protocol uint16) packetSocket {
	t.Helper()
	order := int(protocol>>8 | protocol<<8)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, order)
	if err != nil {
		t.Fatalf("open a packet socket: %v", err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	s := packetSocket{fd: fd, ifindex: int(indexOf(t, device))}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: uint16(order), Ifindex: s.ifindex}); err != nil {
		t.Fatalf("bind a packet socket to %s: %v", device, err)
	}
	return s
}

// send sends a frame as if the given ethertype were its own; 0 takes that of the frame. A frame that a
// program drops is ENOBUFS.
func (s packetSocket) send(frame []byte, protocol uint16) error {
	to := unix.SockaddrLinklayer{Ifindex: s.ifindex, Protocol: protocol>>8 | protocol<<8}
	return unix.Sendto(s.fd, frame, 0, &to)
}

// find returns the first frame that want accepts, or nil.
func (s packetSocket) find(t testing.TB, wait time.Duration, want func(frame []byte) bool) []byte {
	t.Helper()
	buffer := make([]byte, 1<<16)
	for deadline := time.Now().Add(wait); ; {
		left := max(time.Until(deadline), time.Millisecond)
		timeout := unix.NsecToTimeval(left.Nanoseconds())
		if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
			t.Fatal(err)
		}
		n, _, err := unix.Recvfrom(s.fd, buffer, 0)
		switch {
		case err == nil && want(buffer[:n]):
			return buffer[:n]
		case time.Now().After(deadline):
			return nil
		case err != nil && err != unix.EAGAIN && err != unix.EINTR:
			t.Fatalf("receive a frame: %v", err)
		}
	}
}

// sendUDP sends one datagram from a socket of the node.
func sendUDP(t testing.TB, from, to string, mark int, payload string) {
	t.Helper()
	conn := dialUDP(t, from, to, mark)
	if _, err := conn.Write([]byte(payload)); err != nil {
		t.Fatalf("send from %s to %s: %v", from, to, err)
	}
}

func dialUDP(t testing.TB, from, to string, mark int) net.Conn {
	t.Helper()
	local, err := net.ResolveUDPAddr("udp", from)
	if err != nil {
		t.Fatal(err)
	}
	dialer := net.Dialer{LocalAddr: local, Control: func(_, _ string, raw syscall.RawConn) (err error) {
		problem := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, mark) })
		return errors.Join(err, problem)
	}}
	conn, err := dialer.Dial("udp", to)
	if err != nil {
		t.Fatalf("open a socket from %s to %s: %v", from, to, err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
