package proof

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/lab"
	"warren/internal/lab/netns"
	"warren/internal/lab/wire"
)

// canaryTime is how long a frame may take from a node to the capture.
const canaryTime = 3 * time.Second

// singer sends frames in clear from a node that belong to nobody: what does not see these would not
// see a leak either, and they mark places in the order of what is captured. They come in by the same
// port as everything else of the node, but not through its egress hooks, so whatever encrypts there
// cannot have anything to do with them.
type singer struct {
	node lab.Node
	fd   int
}

func newSinger(node lab.Node) (*singer, error) {
	s := &singer{node: node, fd: -1}
	if err := netns.Do(node.Namespace, s.open); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("send frames in clear from %s: %w", node.Name, err)
	}
	return s, nil
}

func (s *singer) open() (err error) {
	device, err := net.InterfaceByName("eth0")
	if err != nil {
		return err
	}
	// Protocol 0 receives nothing.
	s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a packet socket: %w", err)
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return fmt.Errorf("bypass the egress hooks: %w", err)
	}
	return unix.Bind(s.fd, &unix.SockaddrLinklayer{Ifindex: device.Index})
}

// sing sends one frame with the marker.
func (s *singer) sing(canary wire.Marker) error {
	if _, err := unix.Write(s.fd, canaryFrame(wire.MAC(s.node.MAC), canary)); err != nil {
		return fmt.Errorf("send a frame in clear from %s: %w", s.node.Name, err)
	}
	return nil
}

// Close gives the socket back.
func (s *singer) Close() error { return unix.Close(s.fd) }

// errUnheard says that the capture did not see a frame in clear, so it might not see others either.
var errUnheard = errors.New("the capture is blind")

// choir lets every node sing once, and waits until the capture has heard all of them.
func choir(capture *wire.Capture, nodes []lab.Node, canary wire.Marker) error {
	var ports []string
	for _, node := range nodes {
		ports = append(ports, node.Name)
		s, err := newSinger(node)
		if err != nil {
			return err
		}
		err = s.sing(canary)
		_ = s.Close()
		if err != nil {
			return err
		}
	}
	return hear(capture, canary, ports...)
}

// hear waits until the capture has seen the canary come by exactly these ports.
func hear(capture *wire.Capture, canary wire.Marker, ports ...string) error {
	slices.Sort(ports)
	for deadline := time.Now().Add(canaryTime); ; time.Sleep(100 * time.Microsecond) {
		seen := capture.Saw(canary)
		if slices.Equal(seen, ports) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w: frames in clear were sent by %s and seen from %s",
				errUnheard, strings.Join(ports, " "), first(strings.Join(seen, " "), "nobody"))
		}
	}
}

// canaryFrame is UDP between two addresses of documentation (RFC 5737), for a machine that does not
// exist.
func canaryFrame(source wire.MAC, canary wire.Marker) []byte {
	payload := canary.Fill(64)
	frame := []byte{0x02, 0xca, 0, 0, 0, 0}
	frame = append(frame, source[:]...)
	frame = append(frame, 8, 0)
	header := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 1, unix.IPPROTO_UDP, 0, 0, 192, 0, 2, 1, 198, 51, 100, 1}
	binary.BigEndian.PutUint16(header[2:], uint16(len(header)+8+len(payload)))
	binary.BigEndian.PutUint16(header[10:], checksum(header))
	frame = append(frame, header...)
	frame = append(frame, 0, 9, 0, 9) // the port "discard"; a UDP checksum of 0 is none
	frame = binary.BigEndian.AppendUint16(frame, uint16(8+len(payload)))
	frame = append(frame, 0, 0)
	return append(frame, payload...)
}
