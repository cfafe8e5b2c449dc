package proof

import (
	"encoding/binary"
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

// sing lets every node send one frame in clear that belongs to nobody, and returns "" when the capture
// has seen all of them. A capture that does not see these would not see a leak either. The frames
// come in by the same ports as everything else, but not through the node's egress hooks, so whatever
// encrypts there cannot have anything to do with them.
func sing(capture *wire.Capture, nodes []lab.Node, canary wire.Marker) (void string, err error) {
	var ports []string
	for _, node := range nodes {
		ports = append(ports, node.Name)
		err := netns.Do(node.Namespace, func() error { return sendRaw("eth0", canaryFrame(wire.MAC(node.MAC), canary)) })
		if err != nil {
			return "", fmt.Errorf("send a frame in clear from %s: %w", node.Name, err)
		}
	}
	slices.Sort(ports)
	for deadline := time.Now().Add(canaryTime); ; time.Sleep(time.Millisecond) {
		seen := capture.Saw(canary)
		if slices.Equal(seen, ports) {
			return "", nil
		}
		if time.Now().After(deadline) {
			return fmt.Sprintf("every node sent a frame in clear (%s), but the capture saw only those of: %s",
				strings.Join(ports, " "), strings.Join(append(seen, "nobody")[:max(1, len(seen))], " ")), nil
		}
	}
}

// sendRaw puts a frame on the thread's device, past queueing and egress hooks.
func sendRaw(device string, frame []byte) error {
	link, err := net.InterfaceByName(device)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a packet socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return fmt.Errorf("bypass the egress hooks: %w", err)
	}
	if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: link.Index, Halen: 6}); err != nil {
		return fmt.Errorf("send on %s: %w", device, err)
	}
	return nil
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
