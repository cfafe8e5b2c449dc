package datapath

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"warren/internal/cluster"
	"warren/internal/datapath/model"
)

// The tests of this file see what BPF_PROG_RUN does not: where a redirect goes, what a device gets,
// and who else is in the chain. Each has a node with a cable and a tunnel whose other end is the test:
//
//	socket ── eth0 ─┬─ to_netdev ──(clear, for a peer)──► warren0 ══ test
//	                └─ wire: captured
//	socket ◄─ eth0 ◄── from_netdev ◄── from_tunnel ◄──── warren0 ══ test
type node struct {
	*Datapath
	dir     string
	options Options
	tunnel  tunDevice
	config  model.Config
	capture packetSocket
	control trafficControl
}

// everyMode runs a test once for each way to attach programs that the kernel has: before Linux 6.6
// there is one.
func everyMode(t *testing.T, test func(t *testing.T, mode AttachMode)) {
	t.Helper()
	needRoot(t)
	modes := []AttachMode{Clsact}
	if haveTCX() {
		modes = append(modes, TCX)
	}
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) { test(t, mode) })
	}
}

func newNode(t testing.TB, mode AttachMode) *node {
	t.Helper()
	dir := bpffs(t)
	wire(t)
	control := newTrafficControl(t)
	n := &node{
		dir:     dir,
		options: Options{Dir: dir, Attach: mode, MaxAddresses: 64, MaxPrefixes: 64, Filters: control},
		control: control,
		tunnel:  newTUN(t, "warren0"),
		capture: listen(t, "wire", unix.ETH_P_ALL),
	}
	n.config = testConfig()
	n.config.Tunnels[0], n.config.PrimaryUnderlay = indexOf(t, "warren0"), indexOf(t, "eth0")
	n.start(t)
	apply(t, n.Datapath, testEntries(), nil)
	return n
}

// start is what an agent does at its start.
func (n *node) start(t testing.TB) {
	t.Helper()
	n.Datapath = open(t, n.options)
	configure(t, n.Datapath, n.config)
	n.sync(t)
}

func (n *node) sync(t testing.TB) {
	t.Helper()
	if err := n.Sync(context.Background(), []Underlay{underlayOf(t, "eth0")}, n.config.Tunnels); err != nil {
		t.Fatal(err)
	}
}

// count returns how many packets left a program for a reason.
func (n *node) count(t testing.TB, program model.Program, reason model.Reason) uint64 {
	t.Helper()
	counters, err := n.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range counters {
		if c.Program == program && c.Reason == reason {
			return c.Packets
		}
	}
	t.Fatalf("no counter for %v of %v", reason, program)
	return 0
}

func contains(text string) func([]byte) bool {
	return func(frame []byte) bool { return bytes.Contains(frame, []byte(text)) }
}

// inClear returns a frame with the text on the wire, or nil.
func (n *node) inClear(t testing.TB, text string) []byte {
	t.Helper()
	return n.capture.find(t, silence, contains(text))
}

// inTunnel fails unless the next packets in the tunnel have the text and are plain IP.
func (n *node) inTunnel(t testing.TB, version byte, text string) []byte {
	t.Helper()
	packet := n.tunnel.next(t, patience)
	if packet == nil {
		t.Fatalf("nothing came through the tunnel")
	}
	if packet[0]>>4 != version || !bytes.Contains(packet, []byte(text)) {
		t.Fatalf("the tunnel got\n%x\nwant an IPv%d packet with %q", packet, version, text)
	}
	return packet
}

func TestClearPacketTakesTheTunnel(t *testing.T) {
	everyMode(t, func(t *testing.T, mode AttachMode) {
		n := newNode(t, mode)
		tests := []struct {
			name, from, to string
			version        byte
		}{
			{"host to host", "10.0.0.1:0", "10.0.0.2:7", 4},
			{"host to pod", "10.0.0.1:0", "10.244.2.5:7", 4},
			{"IPv6", "[fd00::1]:0", "[fd00::2]:7", 6},
		}
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				sendUDP(t, test.from, test.to, 0, "secret "+test.name)
				n.inTunnel(t, test.version, "secret "+test.name)
				if frame := n.inClear(t, "secret"); frame != nil {
					t.Errorf("on the wire:\n%x", frame)
				}
			})
		}
		if got := n.count(t, toNetdev, model.ReasonRedirected); got != uint64(len(tests)) {
			t.Errorf("%d redirected, want %d", got, len(tests))
		}
	})
}

// TestWireShowsWhatIsNotProtected: the check of the others can fail.
func TestWireShowsWhatIsNotProtected(t *testing.T) {
	everyMode(t, func(t *testing.T, mode AttachMode) {
		n := newNode(t, mode)
		n.config.Mode = cluster.ModeObserve
		configure(t, n.Datapath, n.config)
		sendUDP(t, "10.0.0.1:0", "10.0.0.2:7", 0, "secret")
		if n.capture.find(t, patience, contains("secret")) == nil {
			t.Error("observe mode changed what is on the wire")
		}
		if got := n.count(t, toNetdev, model.ReasonWouldRedirect); got != 1 {
			t.Errorf("%d would be redirected, want 1", got)
		}
		peers, err := n.PeerCounters()
		if err != nil || len(peers) != 1 || peers[0].Endpoint != netip.MustParseAddr("10.0.0.2") || peers[0].Reason != model.ReasonWouldRedirect {
			t.Errorf("counted by peer %+v: %v", peers, err)
		}
	})
}

// TestMarkAloneDoesNotEscape: also not in the later fragments of a large datagram.
func TestMarkAloneDoesNotEscape(t *testing.T) {
	everyMode(t, func(t *testing.T, mode AttachMode) {
		n := newNode(t, mode)
		secret := strings.Repeat("secret ", 600)
		sendUDP(t, "10.0.0.1:0", "10.0.0.2:7", 0x10, secret)
		sendUDP(t, "10.0.0.1:51880", "10.0.0.2:51880", 0x10, secret)
		sendUDP(t, "[fd00::1]:0", "[fd00::2]:7", 0x10, secret)
		for range 9 { // three fragments each
			if packet := n.tunnel.next(t, patience); packet == nil {
				t.Fatal("a fragment did not come through the tunnel")
			}
		}
		if frame := n.inClear(t, "secret"); frame != nil {
			t.Errorf("on the wire:\n%x", frame)
		}
	})
}

// TestWireGuardPasses: what the tunnel's own socket sends, whole and in fragments.
func TestWireGuardPasses(t *testing.T) {
	everyMode(t, func(t *testing.T, mode AttachMode) {
		n := newNode(t, mode)
		message := transportMessage + strings.Repeat("x", 4000) + "end"
		for i, addresses := range [][2]string{{"10.0.0.1:51880", "10.0.0.2:51880"}, {"[fd00::1]:51880", "[fd00::2]:51880"}} {
			sendUDP(t, addresses[0], addresses[1], 0x10, message)
			if n.capture.find(t, patience, contains("end")) == nil {
				t.Errorf("the last fragment from %s did not leave", addresses[0])
			}
			if got, want := n.count(t, toNetdev, model.ReasonEncrypted), uint64(3*(i+1)); got != want {
				t.Errorf("%d fragments counted as encrypted, want %d", got, want)
			}
		}
		if packet := n.tunnel.next(t, silence); packet != nil {
			t.Errorf("went into the tunnel again:\n%x", packet)
		}
	})
}

// TestTaggedPacketsReachTheTunnelPlain: a layer 3 device must not see a tag, wherever the kernel keeps it.
func TestTaggedPacketsReachTheTunnelPlain(t *testing.T) {
	everyMode(t, func(t *testing.T, mode AttachMode) {
		n := newNode(t, mode)
		sender := listen(t, "eth0", 0)
		tests := []struct {
			name  string
			frame []byte
			want  []byte
			aside bool
		}{
			{"802.1Q", tagged(typeIPv4, podToPod, typeVLAN), podToPod, false},
			{"802.1ad and 802.1Q", tagged(typeIPv6, podToPod6, typeQinQ, typeVLAN), podToPod6, false},
			{"aside", ethernet(typeIPv4, podToPod), podToPod, true},
			{"aside, 802.1ad and 802.1Q", tagged(typeIPv4, podToPod, typeQinQ, typeVLAN), podToPod, true},
		}
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				if test.aside {
					n.pushTag(t)
				}
				if err := sender.send(test.frame, 0); err != nil {
					t.Fatal(err)
				}
				if got := n.tunnel.next(t, patience); !bytes.Equal(got, test.want) {
					t.Errorf("the tunnel got\n%x\nwant\n%x", got, test.want)
				}
			})
		}
		if frame := n.capture.find(t, silence, contains(string(podToPod[12:20]))); frame != nil {
			t.Errorf("on the wire:\n%x", frame)
		}
	})
}

// pushTag attaches a program in front of Warren's that gives every packet a VLAN tag beside its frame,
// as a VLAN device on eth0 does.
func (n *node) pushTag(t *testing.T) {
	t.Helper()
	program := newProgram(t, asm.Instructions{
		asm.Mov.Imm(asm.R2, 0x0081), // network byte order
		asm.Mov.Imm(asm.R3, 42),
		asm.FnSkbVlanPush.Call(),
	})
	if n.AttachMode() == TCX {
		attachOther(t, "eth0", program, ebpf.AttachTCXEgress, link.Head())
		return
	}
	n.control.attachEgress(t, "eth0", program)
	t.Cleanup(func() { n.control.detachEgress(t, "eth0") })
}

// newProgram loads a program that does what it is told and lets packets go on, from the label "pass".
func newProgram(t testing.TB, instructions asm.Instructions) *ebpf.Program {
	t.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "other", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: append(instructions, asm.Mov.Imm(asm.R0, -1).WithSymbol("pass"), asm.Return()),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return program
}

// attachOther attaches a program of somebody else's until the end of the test.
func attachOther(t testing.TB, device string, program *ebpf.Program, at ebpf.AttachType, anchor link.Anchor) link.Link {
	t.Helper()
	l, err := link.AttachTCX(link.TCXOptions{Interface: int(indexOf(t, device)), Program: program, Attach: at, Anchor: anchor})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestForgedProtocolIsDropped: a packet socket may give a tagged frame the protocol of IP. The kernel then
// does not take the tag off, and the packet must not go on in clear.
func TestForgedProtocolIsDropped(t *testing.T) {
	everyMode(t, func(t *testing.T, mode AttachMode) {
		n := newNode(t, mode)
		if err := listen(t, "eth0", 0).send(tagged(typeIPv4, podToPod, typeVLAN), typeIPv4); !errors.Is(err, unix.ENOBUFS) {
			t.Errorf("sent: %v, want ENOBUFS", err)
		}
		if got := n.count(t, toNetdev, model.ReasonHelperFailed); got != 1 {
			t.Errorf("%d counted, want 1", got)
		}
		if packet := n.tunnel.next(t, silence); packet != nil {
			t.Errorf("the tunnel got\n%x", packet)
		}
		if frame := n.inClear(t, string(podToPod[12:20])); frame != nil {
			t.Errorf("on the wire:\n%x", frame)
		}
	})
}

func (n *node) waitFor(t testing.TB, program model.Program, reason model.Reason, packets uint64) {
	t.Helper()
	for deadline := time.Now().Add(patience); n.count(t, program, reason) < packets; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			counters, err := n.Counters()
			t.Fatalf("%v counted %d as %v, want %d: %+v %v", program, n.count(t, program, reason), reason, packets,
				slices.DeleteFunc(counters, func(c Counter) bool { return c.Packets == 0 }), err)
		}
	}
}

// TestTruncatedFramesAreDropped: with the ethertype of IP outermost, which BPF_PROG_RUN does not run.
func TestTruncatedFramesAreDropped(t *testing.T) {
	everyMode(t, func(t *testing.T, mode AttachMode) {
		n := newNode(t, mode)
		sender := listen(t, "eth0", 0)
		frames := [][]byte{ethernet(typeIPv4, podToPod[:1]), ethernet(typeIPv4, podToPod[:19]), ethernet(typeIPv6, podToPod6[:39])}
		for _, frame := range frames {
			if err := sender.send(frame, 0); !errors.Is(err, unix.ENOBUFS) {
				t.Errorf("%d bytes sent: %v, want ENOBUFS", len(frame), err)
			}
		}
		if got := n.count(t, toNetdev, model.ReasonMalformed); got != uint64(len(frames)) {
			t.Errorf("%d counted, want %d", got, len(frames))
		}
	})
}

// TestHeaderOutsideLinearPart: WireGuard refuses a packet whose IP header it would have to look for.
func TestHeaderOutsideLinearPart(t *testing.T) {
	n := newNode(t, Clsact)
	ip(t, "link set eth0 mtu 9000")
	dropUnlessLinear := newProgram(t, asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 76, asm.Word), // __sk_buff.data
		asm.LoadMem(asm.R3, asm.R1, 80, asm.Word), // __sk_buff.data_end
		asm.Add.Imm(asm.R2, 20),
		asm.JLE.Reg(asm.R2, asm.R3, "pass"),
		asm.Mov.Imm(asm.R0, actShot),
		asm.Return(),
	})
	n.control.attachEgress(t, "warren0", dropUnlessLinear)
	sender := listen(t, "eth0", 0)
	if err := unix.SetsockoptInt(sender.fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		t.Fatal(err)
	}
	// struct virtio_net_hdr: the linear part ends behind the Ethernet header (hdr_len), which the
	// kernel obeys from the size of a page on.
	header := make([]byte, 10)
	binary.LittleEndian.PutUint16(header[2:], etherLen)
	packet := udpTo("10.244.1.5", "10.244.2.5", 1, 2, strings.Repeat("x", 6000))
	if err := sender.send(slices.Concat(header, ethernet(typeIPv4, packet)), 0); err != nil {
		t.Fatal(err)
	}
	if got := n.tunnel.next(t, patience); !bytes.Equal(got, packet) {
		t.Errorf("the tunnel got %d bytes, want %d", len(got), len(packet))
	}
}

// TestHandBack: a decrypted packet comes to its socket as if eth0 had received it, with strict rp_filter.
func TestHandBack(t *testing.T) {
	everyMode(t, func(t *testing.T, mode AttachMode) {
		n := newNode(t, mode)
		strictReversePath(t)
		tests := []struct {
			name, listen string
			packet       []byte
			etherType    uint16
		}{
			{"IPv4", "10.0.0.1:9", ipv4{src: "10.0.0.2", dst: "10.0.0.1", protocol: protoUDP}.wrap(udp(1, 9, "answer")), typeIPv4},
			{"IPv4 from a pod", "10.0.0.1:9", ipv4{src: "10.244.2.5", dst: "10.0.0.1", protocol: protoUDP}.wrap(udp(1, 9, "answer")), typeIPv4},
			{"IPv6", "[fd00::1]:9", withChecksum(ipv6{src: "fd00::2", dst: "fd00::1", next: protoUDP}.wrap(udp(1, 9, "answer"))), typeIPv6},
		}
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				device := listen(t, "eth0", unix.ETH_P_ALL)
				server := listenUDP(t, test.listen)
				n.tunnel.arrives(t, test.packet)
				payload, mark := receive(t, server)
				if payload != "answer" || mark != 0 {
					t.Errorf("the socket got %q with mark %#x, want the answer without mark", payload, mark)
				}
				frame := device.find(t, patience, contains("answer"))
				want := slices.Concat(interfaceOf(t, "eth0").HardwareAddr, model.HandBackMAC[:], u16(test.etherType), test.packet)
				if !bytes.Equal(frame, want) {
					t.Errorf("eth0 saw\n%x\nwant\n%x", frame, want)
				}
			})
		}
		for _, counted := range []struct {
			program model.Program
			reason  model.Reason
		}{{fromTunnel, model.ReasonDecrypted}, {fromNetdev, model.ReasonHandedBack}} {
			if got := n.count(t, counted.program, counted.reason); got != uint64(len(tests)) {
				t.Errorf("%v counted %d as %v, want %d", counted.program, got, counted.reason, len(tests))
			}
		}
	})
}

// strictReversePath drops what does not come in by the device that its source is reached by.
func strictReversePath(t testing.TB) {
	t.Helper()
	set := func(value string) {
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/all/rp_filter", []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	set("1") // the strictest of "all" and the device counts
	t.Cleanup(func() { set("0") })
}

// withChecksum fills in the UDP checksum, which IPv6 wants.
func withChecksum(packet []byte) []byte {
	length := u16(uint16(len(packet) - 40))
	sum := checksum(slices.Concat(packet[8:40], []byte{0, 0}, length, []byte{0, 0, 0, protoUDP}, packet[40:]))
	copy(packet[46:], u16(sum))
	return packet
}

// listenUDP opens a socket that is told the mark of what it gets.
func listenUDP(t testing.TB, at string) *net.UDPConn {
	t.Helper()
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		problem := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVMARK, 1) })
		return errors.Join(err, problem)
	}}
	conn, err := config.ListenPacket(context.Background(), "udp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.UDPConn)
}

func receive(t testing.TB, conn *net.UDPConn) (payload string, mark uint32) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	buffer, control := make([]byte, 1<<16), make([]byte, 256)
	n, controlLen, _, _, err := conn.ReadMsgUDP(buffer, control)
	if err != nil {
		t.Fatalf("the packet did not arrive: %v", err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:controlLen])
	if err != nil {
		t.Fatal(err)
	}
	for _, message := range messages {
		if message.Header.Level == unix.SOL_SOCKET && message.Header.Type == unix.SO_MARK {
			return string(buffer[:n]), binary.NativeEndian.Uint32(message.Data)
		}
	}
	return string(buffer[:n]), 0
}

// TestClearIsRefused: strict mode drops what comes in clear from a peer that encrypts, and nothing else
// does.
func TestClearIsRefused(t *testing.T) {
	everyMode(t, func(t *testing.T, mode AttachMode) {
		n := newNode(t, mode)
		sender, mac := listen(t, "wire", 0), interfaceOf(t, "eth0").HardwareAddr
		tests := []struct {
			name, listen string
			etherType    uint16
			from         func(text string) []byte
		}{
			{"IPv4", "10.0.0.1:9", typeIPv4, func(text string) []byte { return udpTo("10.0.0.2", "10.0.0.1", 1, 9, text) }},
			{"IPv6", "[fd00::1]:9", typeIPv6, func(text string) []byte {
				return withChecksum(ipv6{src: "fd00::2", dst: "fd00::1", next: protoUDP}.wrap(udp(1, 9, text)))
			}},
		}
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				server := listenUDP(t, test.listen)
				for _, mode := range []cluster.Mode{cluster.ModeStrict, cluster.ModePermissive} {
					n.config.Mode = mode
					configure(t, n.Datapath, n.config)
					frame := slices.Concat(mac, frameMACs[:6], u16(test.etherType), test.from(mode.String()+" text"))
					if err := sender.send(frame, 0); err != nil {
						t.Fatal(err)
					}
				}
				if got, _ := receive(t, server); got != "permissive text" {
					t.Errorf("the socket got %q first, want what came in permissive mode", got)
				}
			})
		}
		if got, want := n.count(t, fromNetdev, model.ReasonClearFromPeer), uint64(2*len(tests)); got != want {
			t.Errorf("%d counted, want %d", got, want)
		}
	})
}

func TestIngressOnDevice(t *testing.T) {
	everyMode(t, func(t *testing.T, mode AttachMode) {
		n := newNode(t, mode)
		n.config.Ingress = model.IngressDevice
		configure(t, n.Datapath, n.config)
		server := listenUDP(t, "10.0.0.1:9")
		n.tunnel.arrives(t, ipv4{src: "10.0.0.2", dst: "10.0.0.1", protocol: protoUDP}.wrap(udp(1, 9, "answer")))
		if payload, _ := receive(t, server); payload != "answer" {
			t.Errorf("the socket got %q", payload)
		}
		if got := n.count(t, fromTunnel, model.ReasonLeftOnDevice); got != 1 {
			t.Errorf("%d left on the device, want 1", got)
		}
		if got := n.count(t, fromNetdev, model.ReasonHandedBack); got != 0 {
			t.Errorf("%d handed back, want 0", got)
		}
	})
}

// TestHugePacketStaysOnDevice: the kernel gives no header to more than 16 KiB (SKB_MAX_ALLOC) in one packet.
func TestHugePacketStaysOnDevice(t *testing.T) {
	everyMode(t, func(t *testing.T, mode AttachMode) {
		n := newNode(t, mode)
		server := listenUDP(t, "10.0.0.1:9")
		n.tunnel.arrives(t, ipv4{src: "10.0.0.2", dst: "10.0.0.1", protocol: protoUDP}.wrap(udp(1, 9, strings.Repeat("x", 20000))))
		if payload, _ := receive(t, server); len(payload) != 20000 {
			t.Errorf("the socket got %d bytes", len(payload))
		}
		if got := n.count(t, fromTunnel, model.ReasonHelperFailed); got != 1 {
			t.Errorf("%d counted, want 1", got)
		}
	})
}

// TestUnderlayWithoutLinkLayer: both ways through a device like ppp.
func TestUnderlayWithoutLinkLayer(t *testing.T) {
	everyMode(t, func(t *testing.T, mode AttachMode) {
		n := newNode(t, mode)
		underlay := newTUN(t, "ppp0")
		ip(t, "route add 10.0.0.6/32 dev ppp0")
		entries := testEntries()
		for i := range entries {
			if entries[i].Entry.Underlay == 5 {
				entries[i].Entry.Underlay = indexOf(t, "ppp0")
			}
		}
		apply(t, n.Datapath, entries, nil)
		if err := n.Sync(context.Background(), []Underlay{underlayOf(t, "eth0"), underlayOf(t, "ppp0")}, n.config.Tunnels); err != nil {
			t.Fatal(err)
		}
		sendUDP(t, "10.0.0.1:0", "10.0.0.6:7", 0, "secret")
		n.inTunnel(t, 4, "secret")
		if packet := underlay.next(t, silence); packet != nil {
			t.Errorf("in clear:\n%x", packet)
		}
		strictReversePath(t)
		server := listenUDP(t, "10.0.0.1:9")
		n.tunnel.arrives(t, ipv4{src: "10.0.0.6", dst: "10.0.0.1", protocol: protoUDP}.wrap(udp(1, 9, "answer")))
		if payload, mark := receive(t, server); payload != "answer" || mark != 0 {
			t.Errorf("the socket got %q with mark %#x", payload, mark)
		}
		underlay.arrives(t, ipv4{src: "10.0.0.6", dst: "10.0.0.1", protocol: protoUDP}.wrap(udp(1, 9, "in clear")))
		n.waitFor(t, fromNetdev, model.ReasonClearFromPeer, 1)
	})
}

// pause between the packets of a flood, so that other tests get their share of the machine.
const pause = 50 * time.Microsecond

// flood sends to a peer until it is stopped, and tells how many packets that were.
type flood struct {
	stop chan struct{}
	sent chan int
}

func startFlood(t testing.TB, n *node) flood {
	t.Helper()
	f := flood{stop: make(chan struct{}), sent: make(chan int, 1)}
	conn := dialUDP(t, "10.0.0.1:0", "10.0.0.2:7", 0)
	go n.tunnel.drain()
	go func() {
		for sent := 0; ; {
			select {
			case <-f.stop:
				f.sent <- sent
				return
			default:
			}
			if _, err := conn.Write(fmt.Appendf(nil, "secret %d", sent)); err == nil {
				sent++
			}
			time.Sleep(pause)
		}
	}()
	return f
}

// end checks that the tunnel had every packet, and the wire none.
func (f flood) end(t testing.TB, n *node) {
	t.Helper()
	close(f.stop)
	sent := <-f.sent
	if sent == 0 {
		t.Fatal("nothing was sent")
	}
	if frame := n.inClear(t, "secret"); frame != nil {
		t.Errorf("on the wire after %d packets:\n%q", sent, frame)
	}
	if got := n.count(t, toNetdev, model.ReasonRedirected); got < uint64(sent) {
		t.Errorf("%d of %d packets were redirected", got, sent)
	}
	t.Logf("%d packets", sent)
}

// TestRestartsUnderTraffic: an agent that goes and comes back, also with another configuration.
func TestRestartsUnderTraffic(t *testing.T) {
	everyMode(t, func(t *testing.T, mode AttachMode) {
		n := newNode(t, mode)
		f := startFlood(t, n)
		for round := range 4 {
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
			n.config.Port = uint16(51880 + round%2)
			n.start(t)
		}
		f.end(t, n)
	})
}

// TestTCXStaysLastUnderTraffic: programs of others come behind ours again and again.
func TestTCXStaysLastUnderTraffic(t *testing.T) {
	needTCX(t)
	n := newNode(t, TCX)
	f := startFlood(t, n)
	for range 6 {
		attachOther(t, "eth0", newProgram(t, nil), ebpf.AttachTCXEgress, link.Tail())
		if got := n.attachment(t, toNetdev); len(got.After) != 1 {
			t.Fatalf("before Sync: %+v", got)
		}
		n.sync(t)
		if got := n.attachment(t, toNetdev); len(got.After) != 0 {
			t.Fatalf("after Sync: %+v", got)
		}
	}
	f.end(t, n)
}

func needTCX(t testing.TB) {
	t.Helper()
	needRoot(t)
	if !haveTCX() {
		t.Skip("the kernel has no TCX (Linux 6.6)")
	}
}
