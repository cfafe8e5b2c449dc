package userspace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
)

// limitLifetime is how long a path that has shown to be narrow is remembered, in case it becomes wide again.
const limitLifetime = time.Minute

// limit is the largest message, in bytes, that leaves whole.
type limit struct {
	size    int
	expires time.Time
}

// Send implements conn.Bind. Messages of one size leave together, in trains that the kernel cuts (UDP_SEGMENT). It
// refuses a train of messages that are larger than the path; a single one it sends in fragments.
//
//	nothing is known of the path ──► trains ──(EMSGSIZE)──► ask for the path's MTU
//	                                                             │
//	up to that size, in trains ◄──────── larger, each alone ◄────┘  for limitLifetime
//
// What fails does not stop the rest.
func (b *bind) Send(messages [][]byte, to conn.Endpoint) error {
	peer, ok := to.(*endpoint)
	if !ok {
		return conn.ErrWrongEndpointType
	}
	fits := b.limitOf(peer)
	var problems []error
	for len(messages) > 0 {
		n := train(messages, fits)
		err := b.send(peer, messages[:n])
		if n > 1 && tooLarge(err) { // nothing of it has left
			if fits = b.learn(peer); len(messages[0]) <= fits {
				fits = 0 // what the kernel says of the path does not explain it: each alone
			}
			continue
		}
		if err != nil {
			problems = append(problems, err)
		}
		messages = messages[n:]
	}
	return errors.Join(problems...)
}

// noLimit is the limit of a path of which nothing is known.
const noLimit = 1 << 16

func (b *bind) limitOf(peer *endpoint) int {
	if narrow, ok := b.limits.Load(peer.Addr()); ok && time.Now().Before(narrow.(limit).expires) {
		return narrow.(limit).size
	}
	return noLimit
}

const (
	// maxSegments of a train: UDP_MAX_SEGMENTS of Linux up to 6.9.
	maxSegments = 64
	// maxTrain is the most bytes in a train: one IPv4 packet (RFC 791 §3.1).
	maxTrain = 1<<16 - 1 - ipv4Header - udpHeader
)

// train returns how many of the messages leave together: all of one size, and at most one shorter at the end.
// What is larger than the limit leaves alone.
func train(messages [][]byte, limit int) int {
	size := len(messages[0])
	if size > limit {
		return 1
	}
	n, total := 1, size
	for n < min(len(messages), maxSegments) && len(messages[n]) <= size && total+len(messages[n]) <= maxTrain {
		total += len(messages[n])
		n++
		if len(messages[n-1]) < size {
			break
		}
	}
	return n
}

// tooLarge: what a train fails with; Linux up to 6.13 says EINVAL.
func tooLarge(err error) bool { return errors.Is(err, unix.EMSGSIZE) || errors.Is(err, unix.EINVAL) }

// learn asks the kernel what fits into one packet to the peer: 0 if it does not say.
func (b *bind) learn(peer *endpoint) int {
	size, err := largestMessage(peer.AddrPort, b.mark.Load())
	if err != nil {
		return 0
	}
	b.limits.Store(peer.Addr(), limit{size, time.Now().Add(limitLifetime)})
	return size
}

// send gives a train to the kernel.
func (b *bind) send(to *endpoint, messages [][]byte) error {
	socket := b.ipv4.Load()
	if to.Addr().Is6() {
		socket = b.ipv6.Load()
	}
	if socket == nil {
		return unix.EAFNOSUPPORT
	}
	if len(messages) > 1 && socket.segments.Load() {
		err := socket.send(messages, segmentSize(len(messages[0])), to.sockaddr())
		if !errors.Is(err, unix.EIO) {
			return err
		}
		socket.segments.Store(false) // a device without checksum offload (udp(7))
	}
	var problems []error
	for i := range messages {
		problems = append(problems, socket.send(messages[i:i+1], nil, to.sockaddr()))
	}
	return errors.Join(problems...)
}

// send sends buffers as one datagram, or as many as the control message says.
func (s *udpSocket) send(buffers [][]byte, control []byte, to unix.Sockaddr) (err error) {
	problem := s.raw.Write(func(fd uintptr) bool {
		for {
			_, err = unix.SendmsgBuffers(int(fd), buffers, control, to, 0)
			if !errors.Is(err, unix.EINTR) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	})
	if problem != nil {
		return problem
	}
	if err != nil {
		return fmt.Errorf("send a datagram: %w", err)
	}
	return nil
}

// segmentSize is the control message for datagrams of so many bytes (udp(7), UDP_SEGMENT: a 16-bit number).
func segmentSize(size int) []byte {
	control := make([]byte, unix.CmsgSpace(2))
	header := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
	header.Level, header.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
	header.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(control[unix.CmsgLen(0):], uint16(size))
	return control
}

const (
	udpHeader  = 8
	ipv4Header = 20
	ipv6Header = 40
)

// largestMessage returns the largest UDP payload in bytes that leaves whole. It sends nothing.
func largestMessage(to netip.AddrPort, mark uint32) (int, error) {
	level, option, header, domain := unix.IPPROTO_IP, unix.IP_MTU, ipv4Header, unix.AF_INET
	if to.Addr().Is6() {
		level, option, header, domain = unix.IPPROTO_IPV6, unix.IPV6_MTU, ipv6Header, unix.AF_INET6
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := errors.Join(setMark(fd, mark), unix.Connect(fd, (&endpoint{to}).sockaddr())); err != nil {
		return 0, err
	}
	mtu, err := unix.GetsockoptInt(fd, level, option)
	return mtu - header - udpHeader, err
}
