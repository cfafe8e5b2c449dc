package userspace

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
)

// limitLifetime is how long a path that has shown to be narrow is remembered, in case it becomes wide again.
const limitLifetime = time.Minute

// bind is the UDP sockets of the device: WireGuard's own (batched, with segmentation offload, marked by
// SO_MARK), which lose a whole batch when one message of it is larger than the path. Here such a message is
// sent by itself, and then the kernel sends it in fragments.
//
//	nothing is known of the path ──► the batch ──(EMSGSIZE)──► ask for the path's MTU
//	                                                                │
//	up to that size, together ◄── split ──► larger, each alone ◄────┘  for limitLifetime
//
// Of a batch that fails some messages may have left. They are sent twice then, and the peer drops the second
// one as a replay.
//
// The engine watches routes only for the stock type, to forget by which address and device a peer was heard. That
// is never known here: the stock Bind loses it where it receives with offload, as since Linux 5.12.
type bind struct {
	conn.Bind
	mark   atomic.Uint32
	limits sync.Map // netip.Addr of a destination → limit
}

// limit is the largest message, in bytes, that leaves whole.
type limit struct {
	size    int
	expires time.Time
}

// newBind returns the UDP sockets of the device.
func newBind() conn.Bind { return &bind{Bind: conn.NewDefaultBind()} }

// SetMark implements conn.Bind.
func (b *bind) SetMark(mark uint32) error {
	b.mark.Store(mark)
	return b.Bind.SetMark(mark)
}

// Send implements conn.Bind.
func (b *bind) Send(messages [][]byte, to conn.Endpoint) error {
	peer := to.(*conn.StdNetEndpoint)
	if narrow, ok := b.limits.Load(peer.DstIP()); ok && time.Now().Before(narrow.(limit).expires) {
		return b.sendSplit(messages, peer, narrow.(limit).size)
	}
	err := b.Bind.Send(messages, peer)
	if len(messages) == 1 || !tooLarge(err) {
		return err
	}
	return b.sendSplit(messages, peer, b.learn(peer))
}

// tooLarge: what a batch fails with; Linux up to 6.13 says EINVAL.
func tooLarge(err error) bool { return errors.Is(err, unix.EMSGSIZE) || errors.Is(err, unix.EINVAL) }

// sendSplit sends messages over the limit alone and those between them together, in their order.
func (b *bind) sendSplit(messages [][]byte, peer *conn.StdNetEndpoint, limit int) error {
	var problems []error
	for len(messages) > 0 {
		end := 1
		for len(messages[0]) <= limit && end < len(messages) && len(messages[end]) <= limit {
			end++
		}
		err := b.Bind.Send(messages[:end], peer)
		if end > 1 && tooLarge(err) { // the path has become narrower
			b.limits.Delete(peer.DstIP())
			err = b.sendSplit(messages[:end], peer, 0)
		}
		problems = append(problems, err)
		messages = messages[end:]
	}
	return errors.Join(problems...)
}

// learn asks the kernel what fits into one packet to the peer: 0 if it does not say.
func (b *bind) learn(peer *conn.StdNetEndpoint) int {
	size, err := largestMessage(peer.AddrPort, peer.SrcIP(), int(b.mark.Load()))
	if err != nil {
		return 0
	}
	b.limits.Store(peer.DstIP(), limit{size, time.Now().Add(limitLifetime)})
	return size
}

const (
	udpHeader  = 8
	ipv4Header = 20
	ipv6Header = 40
)

// largestMessage returns the largest UDP payload in bytes that leaves whole. Source may be invalid. It sends
// nothing.
func largestMessage(to netip.AddrPort, source netip.Addr, mark int) (int, error) {
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return control(raw, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, mark) })
	}}
	if source.IsValid() {
		dialer.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
	}
	socket, err := dialer.Dial("udp", to.String())
	if err != nil {
		return 0, err
	}
	defer socket.Close()
	raw, err := socket.(*net.UDPConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	level, option, header := unix.IPPROTO_IP, unix.IP_MTU, ipv4Header
	if to.Addr().Is6() {
		level, option, header = unix.IPPROTO_IPV6, unix.IPV6_MTU, ipv6Header
	}
	var mtu int
	err = control(raw, func(fd int) (err error) {
		mtu, err = unix.GetsockoptInt(fd, level, option)
		return err
	})
	return mtu - header - udpHeader, err
}

func control(raw syscall.RawConn, do func(fd int) error) (err error) {
	problem := raw.Control(func(fd uintptr) { err = do(int(fd)) })
	return errors.Join(err, problem)
}
