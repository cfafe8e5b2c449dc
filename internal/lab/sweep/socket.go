package sweep

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"warren/internal/lab/netns"
	"warren/internal/lab/proof"
)

// Lengths of headers in bytes.
const (
	ipv4Header = 20
	ipv6Header = 40
	udpHeader  = 8 // and that of ICMP echo
)

// receiveBuffer holds the batches of all rows at once, as the kernel counts it.
const receiveBuffer = 4 << 20

func enlarge(fd int) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
}

// dialDatagrams opens the socket of a row: it is connected, so that it hears of ICMP errors and has an MTU.
func dialDatagrams(row proof.Row, df bool, port uint16, body []byte) (*datagrams, error) {
	from, to := row.Ends()
	d := &datagrams{outcome: newOutcome(), buffer: make([]byte, 1<<16), overhead: ipHeader(to.Address) + udpHeader}
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return control(raw, func(fd int) error {
			return errors.Join(enlarge(fd), fragment(fd, to.Address, !df), filter(fd, row))
		})
	}}
	peer := netip.AddrPortFrom(to.Address, port)
	network, address := "udp", peer.String()
	d.encode = func(length int) []byte { return body[:length] }
	d.decode = func(answer []byte) (int, bool) { return len(answer), bytes.Equal(answer, body[:len(answer)]) }
	if row.Protocol == "icmp" {
		peer = netip.AddrPortFrom(to.Address, 0)
		network, address = icmpNetwork(to.Address), to.Address.String()
		d.encode, d.decode = echoCodec(to.Address, body)
	}
	err := netns.Do(from.Namespace, func() (err error) {
		d.socket, err = dialer.Dial(network, address)
		return err
	})
	if err != nil {
		return nil, err
	}
	raw, err := d.socket.(syscall.Conn).SyscallConn()
	if err != nil {
		_ = d.socket.Close()
		return nil, err
	}
	d.mtu = func() (int, error) { return pathMTU(raw, peer) }
	return d, nil
}

func ipHeader(addr netip.Addr) int {
	if addr.Is6() {
		return ipv6Header
	}
	return ipv4Header
}

func icmpNetwork(addr netip.Addr) string {
	if addr.Is6() {
		return "ip6:ipv6-icmp"
	}
	return "ip4:icmp"
}

// Types of echo messages (RFC 792, RFC 4443 §4).
const (
	echoRequest, echoReply   = 8, 0
	echoRequest6, echoReply6 = 128, 129
)

// echoCodec makes echo requests and reads their replies. The first two bytes of the body are the identifier too: the kernel
// gives every raw socket the replies to all. What is read from an IPv4 socket begins with the IP header.
func echoCodec(to netip.Addr, body []byte) (encode func(int) []byte, decode func([]byte) (int, bool)) {
	identifier, request, reply, header := binary.BigEndian.Uint16(body), byte(echoRequest), byte(echoReply), ipv4Header
	if to.Is6() {
		request, reply, header = echoRequest6, echoReply6, 0
	}
	encode = func(length int) []byte { return proof.EchoMessage(request, identifier, body[:length]) }
	decode = func(answer []byte) (int, bool) {
		if len(answer) < header+udpHeader {
			return 0, false
		}
		message := answer[header:]
		payload := message[udpHeader:]
		ours := message[0] == reply && binary.BigEndian.Uint16(message[4:]) == identifier
		return len(payload), ours && bytes.Equal(payload, body[:len(payload)])
	}
	return encode, decode
}

// filter lets nothing but echo replies into the buffer of a raw socket.
func filter(fd int, row proof.Row) error {
	switch {
	case row.Protocol != "icmp":
		return nil
	case row.Family == "ipv4":
		return unix.SetsockoptInt(fd, unix.SOL_RAW, unix.ICMP_FILTER, ^(1 << echoReply))
	}
	// A set bit blocks (RFC 3542 §3.2 leaves that to the system; linux/icmpv6.h).
	var blocked unix.ICMPv6Filter
	for i := range blocked.Data {
		blocked.Data[i] = math.MaxUint32
	}
	blocked.Data[echoReply6/32] &^= 1 << (echoReply6 % 32)
	return unix.SetsockoptICMPv6Filter(fd, unix.IPPROTO_ICMPV6, unix.ICMPV6_FILTER, &blocked)
}

// fragment says whether the kernel may cut a datagram, and a router on the way: IP_PMTUDISC_DONT, or else IP_PMTUDISC_DO,
// which sets "don't fragment" and refuses what is larger than the MTU that the kernel knows of.
func fragment(fd int, addr netip.Addr, allowed bool) error {
	level, option, value := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO
	if addr.Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER // with the same values
	}
	if allowed {
		value = unix.IP_PMTUDISC_DONT
	}
	return unix.SetsockoptInt(fd, level, option, value)
}

// pathMTU asks what the kernel knows of the path of a connected socket. The kernel answers with the route that the socket
// has had since it was connected, which for a raw IPv6 socket is renewed by nothing but an ICMP error about a packet of its
// own (net/ipv6/raw.c), and not while it sends; so it is connected to the same end again.
func pathMTU(raw syscall.RawConn, peer netip.AddrPort) (mtu int, err error) {
	level, option := unix.IPPROTO_IP, unix.IP_MTU
	if peer.Addr().Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU
	}
	err = control(raw, func(fd int) (err error) {
		if err := unix.Connect(fd, sockaddr(peer)); err != nil {
			return err
		}
		mtu, err = unix.GetsockoptInt(fd, level, option)
		return err
	})
	return mtu, err
}

func sockaddr(at netip.AddrPort) unix.Sockaddr {
	if at.Addr().Is6() {
		return &unix.SockaddrInet6{Addr: at.Addr().As16(), Port: int(at.Port())}
	}
	return &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}
}

func control(raw syscall.RawConn, do func(fd int) error) (err error) {
	problem := raw.Control(func(fd uintptr) { err = do(int(fd)) })
	return errors.Join(err, problem)
}
