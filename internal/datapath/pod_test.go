package datapath

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/datapath/model"
)

// pod is a network namespace behind the node, with a socket that sends to a pod of the peer 10.0.0.7, whose
// tunnel carries 1400 bytes:
//
//	socket ── pod0 (10.244.1.5 fd00:244:1::5) ═══ pod ── node ── eth0: to_netdev ──► warren0 ══ test
type pod struct {
	conn    *net.UDPConn
	capture packetSocket // of pod0
	ipv6    bool
}

func newPod(t *testing.T, to string) pod {
	t.Helper()
	sysctl(t, "ipv4/ip_forward", "1", "0")
	sysctl(t, "ipv6/conf/all/forwarding", "1", "0")
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	p := pod{ipv6: netip.MustParseAddrPort(to).Addr().Is6()}
	inNamespace(t, func() {
		ip(t, fmt.Sprintf("link add pod0 type veth peer name pod netns /proc/%d/fd/%d", os.Getpid(), home.Fd()),
			"link set pod0 addrgenmode none", "addr add 10.244.1.5/24 dev pod0", "addr add fd00:244:1::5/64 dev pod0 nodad", "link set pod0 up",
			"route add default via 10.244.1.1", "route add default via fd00:244:1::1")
		p.capture = listen(t, "pod0", unix.ETH_P_ALL)
		conn, err := net.Dial("udp", to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		p.conn = conn.(*net.UDPConn)
	})
	t.Cleanup(func() { ip(t, "link del pod") })
	ip(t, "link set pod addrgenmode none", "addr add 10.244.1.1/24 dev pod", "addr add fd00:244:1::1/64 dev pod nodad", "link set pod up",
		"neigh add 10.0.0.7 lladdr 02:00:00:00:00:07 dev eth0", "route add 10.244.7.0/24 via 10.0.0.7",
		"neigh add fd00::7 lladdr 02:00:00:00:00:07 dev eth0", "route add fd00:244:7::/64 via fd00::7")
	p.set(t, unix.IP_MTU_DISCOVER, unix.IPV6_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
	if err := unix.SetsockoptInt(p.capture.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
		t.Fatal(err)
	}
	return p
}

func sysctl(t testing.TB, name, value, after string) {
	t.Helper()
	write := func(value string) {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(value)
	t.Cleanup(func() { write(after) })
}

// option runs do with the socket and the option that its family has.
func (p pod) option(t testing.TB, four, six int, do func(fd, level, option int) error) {
	t.Helper()
	level, option := unix.IPPROTO_IP, four
	if p.ipv6 {
		level, option = unix.IPPROTO_IPV6, six
	}
	raw, err := p.conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var problem error
	if err := raw.Control(func(fd uintptr) { problem = do(int(fd), level, option) }); err != nil || problem != nil {
		t.Fatal(err, problem)
	}
}

func (p pod) set(t testing.TB, four, six, value int) {
	t.Helper()
	p.option(t, four, six, func(fd, level, option int) error { return unix.SetsockoptInt(fd, level, option, value) })
}

// pathMTU is what the pod's kernel believes.
func (p pod) pathMTU(t testing.TB) (mtu int) {
	t.Helper()
	p.option(t, unix.IP_MTU, unix.IPV6_MTU, func(fd, level, option int) (err error) {
		mtu, err = unix.GetsockoptInt(fd, level, option)
		return err
	})
	return mtu
}

// headers of a datagram in bytes.
func (p pod) headers() int {
	if p.ipv6 {
		return 48
	}
	return 28
}

// send sends one packet of that many bytes.
func (p pod) send(size int) error {
	_, err := p.conn.Write(bytes.Repeat([]byte("x"), size-p.headers()))
	return err
}

func (p pod) sendLarge(t testing.TB) {
	t.Helper()
	if err := p.send(1500); err != nil {
		t.Fatal(err)
	}
}

// sendDatagrams sends three packets of 1500 bytes, which the kernel takes and carries as one.
func (p pod) sendDatagrams(t testing.TB) {
	t.Helper()
	payload := 1500 - p.headers()
	p.segment(t, payload)
	if err := p.send(p.headers() + 3*payload); err != nil {
		t.Fatal(err)
	}
	p.segment(t, 0)
}

// segment makes the kernel cut what is sent into datagrams of that many bytes; 0 ends it.
func (p pod) segment(t testing.TB, size int) {
	t.Helper()
	p.option(t, 0, 0, func(fd, _, _ int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, size) })
}

// answer returns the ICMP error that came to the pod, and whether its checksum still has to be filled in.
func (p pod) answer(t testing.TB) (packet []byte, owed bool) {
	t.Helper()
	timeout := unix.NsecToTimeval(patience.Nanoseconds())
	if err := unix.SetsockoptTimeval(p.capture.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		t.Fatal(err)
	}
	buffer, control := make([]byte, 1<<16), make([]byte, 256)
	for {
		n, controlLen, _, _, err := unix.Recvmsg(p.capture.fd, buffer, control, 0)
		if err != nil {
			t.Fatalf("no error came: %v", err)
		}
		frame := buffer[:n]
		if parsed, unreadable := model.Parse(frame, model.Meta{}); unreadable != 0 || parsed.Protocol != 1 && parsed.Protocol != protoICMP ||
			parsed.ICMPType != 2 && parsed.ICMPType != 3 {
			continue
		}
		messages, err := unix.ParseSocketControlMessage(control[:controlLen])
		if err != nil || len(messages) != 1 {
			t.Fatalf("auxiliary data: %v %v", messages, err)
		}
		return frame[etherLen:], binary.NativeEndian.Uint32(messages[0].Data)&unix.TP_STATUS_CSUMNOTREADY != 0
	}
}

// TestPodIsTold: the pod's kernel accepts the error, with strict reverse-path filters, and what it
// sends from then on fits.
func TestPodIsTold(t *testing.T) {
	everyMode(t, func(t *testing.T, mode AttachMode) {
		for _, to := range []string{"10.244.7.5:7", "[fd00:244:7::5]:7"} {
			for _, oversize := range []model.Oversize{model.OversizeAuto, model.OversizeICMP} {
				t.Run(to+" "+oversize.String(), func(t *testing.T) {
					n := newNode(t, mode)
					strictReversePath(t)
					n.config.Oversize = oversize
					configure(t, n.Datapath, n.config)
					p := newPod(t, to)
					testTelling(t, n, p, p.sendLarge, oversize == model.OversizeAuto)
				})
			}
		}
	})
}

// TestPodIsToldAboutDatagrams: a large packet of small datagrams (USO) is as large as one of them.
func TestPodIsToldAboutDatagrams(t *testing.T) {
	for _, to := range []string{"10.244.7.5:7", "[fd00:244:7::5]:7"} {
		t.Run(to, func(t *testing.T) {
			n := newNode(t, Clsact)
			p := newPod(t, to)
			testTelling(t, n, p, p.sendDatagrams, true)
			if got := n.count(t, toNetdev, model.ReasonTooBigTold); got != 1 {
				t.Errorf("%d packets were answered, want the one of all datagrams", got)
			}
		})
	}
}

// testTelling begins with a packet of 1500 bytes, or several.
func testTelling(t *testing.T, n *node, p pod, first func(testing.TB), sent bool) {
	t.Helper()
	first(t)
	wait := silence
	if sent {
		wait = patience
	}
	if got := n.tunnel.nextOf(t, wait, 1500); (got != nil) != sent {
		t.Fatalf("the tunnel got the packet: %v, want %v", got != nil, sent)
	}
	packet, owed := p.answer(t)
	checkError(t, packet, owed, p.ipv6)
	for deadline := time.Now().Add(patience); p.pathMTU(t) != 1400; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the pod's kernel knows %d bytes, want 1400", p.pathMTU(t))
		}
	}
	p.option(t, 0, 0, func(fd, _, _ int) error { // takes the error that is pending
		_, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		return err
	})
	if err := p.send(1401); !errors.Is(err, unix.EMSGSIZE) {
		t.Errorf("one byte too many: %v, want EMSGSIZE", err)
	}
	if err := p.send(1400); err != nil {
		t.Fatal(err)
	}
	if n.tunnel.nextOf(t, patience, 1400) == nil {
		t.Error("a packet that fits did not come through the tunnel")
	}
	if frame := n.inClear(t, strings.Repeat("x", 100)); frame != nil {
		t.Errorf("on the wire:\n%x", frame)
	}
}

// checkError: the sums are those of its bytes, and its hop limit is the node's less one hop.
func checkError(t *testing.T, packet []byte, owed, six bool) {
	t.Helper()
	if owed {
		t.Error("somebody is to write a checksum into the error")
	}
	hops, sums := packet[8], [][]byte{packet[:20], packet[20:]}
	if six {
		hops, sums = packet[7], [][]byte{append(append(bytes.Clone(packet[8:40]), packet[4], packet[5], 0, protoICMP), packet[40:]...)}
	}
	for _, data := range sums {
		if got := checksum(data); got != 0 {
			t.Errorf("the sum is wrong by %#x:\n%x", got, packet)
		}
	}
	if hops != 63 {
		t.Errorf("hop limit %d, want 63", hops)
	}
}
