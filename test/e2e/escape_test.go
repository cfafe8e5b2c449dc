package e2e

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/lab"
	"warren/internal/lab/netns"
	"warren/internal/lab/wire"
)

// attempt is a packet that somebody would like to see on the wire in clear.
type attempt struct {
	name  string
	place string // namespace
	send  func(payload []byte) error
}

// attempts are sent from n1 and its pod. The mark is Warren's own, the port is WireGuard's.
func attempts(topology lab.Topology) []attempt {
	n1, n2 := topology.Nodes[0], topology.Nodes[1]
	pod, other := n1.Pods[0], n2.Pods[0]
	const mark = 0x10
	var all []attempt
	for f, family := range []string{"ipv4", "ipv6"} {
		from, to := netip.AddrPortFrom(n1.Addresses[f], lab.Port), netip.AddrPortFrom(n2.Addresses[f], lab.Port)
		toPod := netip.AddrPortFrom(other.Addresses[f], 9999)
		fromPod := netip.AddrPortFrom(pod.Addresses[f], lab.Port)
		all = append(all,
			attempt{family + ": a process on the node with the mark, to a node", n1.Namespace, datagram(netip.AddrPort{}, netip.AddrPortFrom(to.Addr(), 9999), mark)},
			attempt{family + ": a process on the node with the mark, to the port of WireGuard", n1.Namespace, datagram(netip.AddrPort{}, to, mark)},
			attempt{family + ": a process on the node with the mark, to a pod", n1.Namespace, datagram(netip.AddrPort{}, toPod, mark)},
			attempt{family + ": a process on the node with the mark, in two fragments", n1.Namespace, enlarged(datagram(netip.AddrPort{}, toPod, mark), 2000)},
			attempt{family + ": a pod with the mark, to a pod", pod.Namespace, datagram(netip.AddrPort{}, toPod, mark)},
			attempt{family + ": a pod with the mark, to a node", pod.Namespace, datagram(netip.AddrPort{}, netip.AddrPortFrom(to.Addr(), 9999), mark)},
			attempt{family + ": a pod from the port of WireGuard with the mark", pod.Namespace, datagram(fromPod, to, mark)},
			attempt{family + ": from the port of WireGuard without the mark", n1.Namespace, rawDatagram(from, to, 0)},
			attempt{family + ": from the port of WireGuard without the mark, to a pod", n1.Namespace, rawDatagram(from, toPod, 0)},
			attempt{family + ": from the port of WireGuard with another mark", n1.Namespace, rawDatagram(from, to, 0x20)},
			attempt{family + ": with the mark from the address of cni0", n1.Namespace, rawDatagram(netip.AddrPortFrom(n1.Prefixes[f].Addr().Next(), lab.Port), to, mark)},
		)
	}
	return all
}

// TestNothingEscapes: neither the mark alone nor the port alone lets a packet out in clear. The same
// packets do show on the wire of a lab without encryption.
func TestNothingEscapes(t *testing.T) {
	for _, attach := range []string{"tcx", "clsact"} {
		t.Run(attach, func(t *testing.T) {
			t.Parallel()
			c := up(t, "escape-"+attach, "--nodes", "2", "--pods", "1", "--attach", attach)
			for name, seen := range tryAll(t, c.open()) {
				if seen {
					t.Errorf("in clear on the wire: %s", name)
				}
			}
			c.mustVerify(2 * 4 * 2 * 3)
		})
	}
	t.Run("control", func(t *testing.T) {
		t.Parallel()
		c := up(t, "escape-control", "--nodes", "2", "--pods", "1", "--no-encryption")
		for name, seen := range tryAll(t, c.open()) {
			if !seen {
				t.Errorf("not on the wire even without encryption: %s", name)
			}
		}
	})
}

// tryAll makes every attempt and says which of them could be read on the wire.
func tryAll(t *testing.T, l *lab.Lab) map[string]bool {
	t.Helper()
	magic := [wire.MagicLen]byte{0xe5, 0xca, 0x9e, 0, 0, 0, 0, 1}
	capture, err := wire.Listen(l.Topology.Wire, l.Topology.Bridges(), wire.Options{Magic: magic})
	if err != nil {
		t.Fatal(err)
	}
	list := attempts(l.Topology)
	markers := make([]wire.Marker, len(list))
	for i, a := range list {
		copy(markers[i][:], magic[:])
		binary.BigEndian.PutUint64(markers[i][wire.MagicLen:], uint64(i+1))
		// Twice: the first packet may wait for a handshake or a neighbour.
		for range 2 {
			if err := netns.Do(a.place, func() error { return a.send(markers[i].Fill(256)) }); err != nil {
				t.Fatalf("%s: %v", a.name, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	time.Sleep(500 * time.Millisecond)
	frames, err := capture.Close()
	if err != nil {
		t.Fatal(err)
	}
	if len(frames) < len(list) {
		t.Errorf("%d frames on the wire for %d attempts: were they sent at all?", len(frames), len(list))
	}
	seen := map[string]bool{}
	for i, a := range list {
		seen[a.name] = slices.ContainsFunc(frames, func(f wire.Frame) bool { return slices.Contains(f.Markers, markers[i]) })
	}
	return seen
}

// datagram sends from a UDP socket with a mark; the zero source leaves it to the kernel.
func datagram(from, to netip.AddrPort, mark int) func([]byte) error {
	return func(payload []byte) error {
		fd, err := socket(to.Addr(), unix.SOCK_DGRAM, 0, mark)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if from.IsValid() {
			if err := unix.Bind(fd, sockaddr(from)); err != nil {
				return fmt.Errorf("bind to %s: %w", from, err)
			}
		}
		return unix.Sendto(fd, payload, 0, sockaddr(to))
	}
}

// enlarged makes the payload larger, so that it takes fragments.
func enlarged(send func([]byte) error, size int) func([]byte) error {
	return func(payload []byte) error {
		return send(slices.Repeat(payload, size/len(payload)+1)[:size])
	}
}

// rawDatagram sends UDP with a source port that is somebody else's, which takes a raw socket.
func rawDatagram(from, to netip.AddrPort, mark int) func([]byte) error {
	return func(payload []byte) error {
		fd, err := socket(to.Addr(), unix.SOCK_RAW, unix.IPPROTO_UDP, mark)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(from.Addr(), 0))); err != nil {
			return fmt.Errorf("bind to %s: %w", from, err)
		}
		message := binary.BigEndian.AppendUint16(nil, from.Port())
		message = binary.BigEndian.AppendUint16(message, to.Port())
		message = binary.BigEndian.AppendUint16(message, uint16(8+len(payload)))
		message = append(message, 0, 0) // no checksum; nobody is meant to accept it
		return unix.Sendto(fd, append(message, payload...), 0, sockaddr(netip.AddrPortFrom(to.Addr(), 0)))
	}
}

func socket(family netip.Addr, kind, protocol, mark int) (int, error) {
	domain := unix.AF_INET
	if family.Is6() {
		domain = unix.AF_INET6
	}
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return -1, fmt.Errorf("open a socket: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, mark); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("set the mark: %w", err)
	}
	return fd, nil
}

func sockaddr(address netip.AddrPort) unix.Sockaddr {
	if address.Addr().Is6() {
		return &unix.SockaddrInet6{Port: int(address.Port()), Addr: address.Addr().As16()}
	}
	return &unix.SockaddrInet4{Port: int(address.Port()), Addr: address.Addr().As4()}
}
