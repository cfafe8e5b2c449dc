package userspace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
)

// bind is the UDP sockets of the device. Against WireGuard's own (conn.StdNetBind) it
//
//   - loses no message that is larger than the path, where the stock one loses a whole batch for it: see send.go
//   - lets routers fragment over IPv4, as kernel WireGuard does: see setOptions
//   - copies no packet to put a batch together or to take it apart: see send.go and receive.go
//
// Source addresses are the kernel's choice for each message, as they are with the stock Bind where it receives
// with offload. The engine watches routes only for the stock one.
type bind struct {
	mu     sync.Mutex // Open, Close and SetMark
	ipv4   atomic.Pointer[udpSocket]
	ipv6   atomic.Pointer[udpSocket]
	mark   atomic.Uint32
	limits sync.Map // netip.Addr of a destination → limit
}

// udpSocket is the socket of one family.
type udpSocket struct {
	*net.UDPConn
	raw syscall.RawConn
	// segments: the kernel takes several messages at once (UDP_SEGMENT, Linux 4.18).
	segments atomic.Bool
}

// openTries is how often a port that is free for both families is looked for.
const openTries = 100

// Open implements conn.Bind. One family may be missing.
func (b *bind) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ipv4.Load() != nil || b.ipv6.Load() != nil {
		return nil, 0, conn.ErrBindAlreadyOpen
	}
	for try := 1; ; try++ {
		receivers, actual, err := b.open(port)
		if err == nil {
			return receivers, actual, nil
		}
		if port != 0 || !errors.Is(err, unix.EADDRINUSE) || try == openTries {
			return nil, 0, err
		}
	}
}

// open opens both families on one port; what was opened before an error is closed again.
func (b *bind) open(port uint16) (receivers []conn.ReceiveFunc, actual uint16, err error) {
	actual = port
	for _, family := range []struct {
		network string
		socket  *atomic.Pointer[udpSocket]
	}{{"udp4", &b.ipv4}, {"udp6", &b.ipv6}} {
		socket, err := listenUDP(family.network, actual)
		if errors.Is(err, unix.EAFNOSUPPORT) {
			continue
		}
		if err != nil {
			return nil, 0, errors.Join(err, b.close())
		}
		family.socket.Store(socket)
		actual = socket.LocalAddr().(*net.UDPAddr).AddrPort().Port()
		receivers = append(receivers, newReceiver(socket).receive)
	}
	if len(receivers) == 0 {
		return nil, 0, unix.EAFNOSUPPORT
	}
	return receivers, actual, nil
}

func listenUDP(network string, port uint16) (*udpSocket, error) {
	config := net.ListenConfig{Control: func(network, _ string, raw syscall.RawConn) error {
		return control(raw, func(fd int) error { return setOptions(network, fd) })
	}}
	listener, err := config.ListenPacket(context.Background(), network, ":"+strconv.Itoa(int(port)))
	if err != nil {
		return nil, err
	}
	s := &udpSocket{UDPConn: listener.(*net.UDPConn)}
	if s.raw, err = s.SyscallConn(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, control(s.raw, func(fd int) error {
		_, err := unix.GetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT)
		s.segments.Store(err == nil)
		return nil
	})
}

// bufferSize of a socket in bytes, as the stock Bind's.
const bufferSize = 7 << 20

// setOptions of a new socket. What only makes it faster may fail.
//
// IP_PMTUDISC_DONT leaves "don't fragment" unset, as kernel WireGuard does: a router with a narrower path behind
// it fragments, where otherwise all large packets would vanish if its ICMP is blocked. IPv6 routers never fragment;
// there the kernel does, by what they report.
func setOptions(network string, fd int) error {
	for _, option := range []int{unix.SO_RCVBUF, unix.SO_SNDBUF, unix.SO_RCVBUFFORCE, unix.SO_SNDBUFFORCE} {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, bufferSize)
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1) // Linux 5.0
	if network == "udp4" {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)
	}
	return nil
}

// Close implements conn.Bind.
func (b *bind) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.close()
}

func (b *bind) close() error {
	var problems []error
	for _, socket := range []*atomic.Pointer[udpSocket]{&b.ipv4, &b.ipv6} {
		if s := socket.Swap(nil); s != nil {
			problems = append(problems, s.Close())
		}
	}
	return errors.Join(problems...)
}

// SetMark implements conn.Bind.
func (b *bind) SetMark(mark uint32) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mark.Store(mark)
	for _, s := range []*udpSocket{b.ipv4.Load(), b.ipv6.Load()} {
		if s == nil {
			continue
		}
		if err := control(s.raw, func(fd int) error { return setMark(fd, mark) }); err != nil {
			return fmt.Errorf("mark what %s sends: %w", s.LocalAddr(), err)
		}
	}
	return nil
}

func setMark(fd int, mark uint32) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(mark))
}

// BatchSize implements conn.Bind.
func (*bind) BatchSize() int { return conn.IdealBatchSize }

// ParseEndpoint implements conn.Bind.
func (*bind) ParseEndpoint(text string) (conn.Endpoint, error) {
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		return nil, err
	}
	return &endpoint{at}, nil
}

// endpoint is the UDP address of a peer. It never changes, so that packets may share one.
type endpoint struct{ netip.AddrPort }

// ClearSrc implements conn.Endpoint: no source address is kept.
func (*endpoint) ClearSrc() {}

// SrcToString implements conn.Endpoint.
func (*endpoint) SrcToString() string { return "" }

// SrcIP implements conn.Endpoint.
func (*endpoint) SrcIP() netip.Addr { return netip.Addr{} }

// DstToString implements conn.Endpoint.
func (e *endpoint) DstToString() string { return e.AddrPort.String() }

// DstToBytes implements conn.Endpoint.
func (e *endpoint) DstToBytes() []byte {
	bytes, _ := e.MarshalBinary() // never fails
	return bytes
}

// DstIP implements conn.Endpoint.
func (e *endpoint) DstIP() netip.Addr { return e.Addr() }

// sockaddr returns a new one each time: x/sys/unix writes into it.
func (e *endpoint) sockaddr() unix.Sockaddr {
	if e.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: e.Addr().As4(), Port: int(e.Port())}
	}
	return &unix.SockaddrInet6{Addr: e.Addr().As16(), Port: int(e.Port())}
}

func control(raw syscall.RawConn, do func(fd int) error) (err error) {
	problem := raw.Control(func(fd uintptr) { err = do(int(fd)) })
	return errors.Join(err, problem)
}
