package proof

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/lab/netns"
	"warren/internal/lab/wire"
)

// resendAfter is how long an answer to a datagram may take before it is sent again: the first packet
// between two nodes may be lost while they shake hands.
const resendAfter = 300 * time.Millisecond

// errNoAnswer says that nothing with the marker came back.
var errNoAnswer = errors.New("nothing came back")

// send does the exchange: the marker goes to the other end, which sends it back.
func (e *exchange) send(size int, timeout time.Duration) {
	payload, to, deadline := e.marker.Fill(size), e.row.destination.Address, time.Now().Add(timeout)
	e.failure = netns.Do(e.row.source.Namespace, func() (err error) {
		switch e.row.Protocol {
		case "icmp":
			e.flow, err = ping(to, payload, deadline)
		case "udp":
			e.flow, err = askUDP(to, payload, deadline)
		default:
			e.flow, err = askTCP(to, payload, deadline)
		}
		return err
	})
}

func askUDP(to netip.Addr, payload []byte, deadline time.Time) (wire.Flow, error) {
	remote := netip.AddrPortFrom(to, EchoPort)
	connection, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(remote))
	if err != nil {
		return wire.Flow{}, err
	}
	defer connection.Close()
	flow := wire.Flow{Protocol: unix.IPPROTO_UDP, Source: connection.LocalAddr().(*net.UDPAddr).AddrPort(), Destination: remote}
	return flow, ask(connection, payload, payload, deadline)
}

// ask sends a datagram again and again until the wanted answer comes.
func ask(connection net.Conn, payload, want []byte, deadline time.Time) error {
	failure := errNoAnswer
	for time.Now().Before(deadline) {
		again := earlier(deadline, time.Now().Add(resendAfter))
		_, err := connection.Write(payload)
		if err == nil {
			err = await(connection, want, again)
		}
		if err == nil {
			return nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			failure = err
			time.Sleep(time.Until(again)) // such as "refused": the other end may be a moment late
		}
	}
	return failure
}

// await reads datagrams until one ends with the wanted bytes.
func await(connection net.Conn, want []byte, until time.Time) error {
	if err := connection.SetReadDeadline(until); err != nil {
		return err
	}
	buffer := make([]byte, 65536)
	for {
		n, err := connection.Read(buffer)
		if err != nil {
			return err
		}
		if bytes.HasSuffix(buffer[:n], want) {
			return nil
		}
	}
}

func askTCP(to netip.Addr, payload []byte, deadline time.Time) (wire.Flow, error) {
	remote := netip.AddrPortFrom(to, EchoPort)
	dialer := net.Dialer{Deadline: deadline}
	connection, err := dialer.Dial("tcp", remote.String())
	if err != nil {
		return wire.Flow{}, err
	}
	defer connection.Close()
	flow := wire.Flow{Protocol: unix.IPPROTO_TCP, Source: connection.LocalAddr().(*net.TCPAddr).AddrPort(), Destination: remote}
	if err := connection.SetDeadline(deadline); err != nil {
		return flow, err
	}
	if _, err := connection.Write(payload); err != nil {
		return flow, err
	}
	if err := connection.(*net.TCPConn).CloseWrite(); err != nil {
		return flow, err
	}
	answer, err := io.ReadAll(connection)
	if err != nil {
		return flow, err
	}
	if !bytes.Equal(answer, payload) {
		return flow, fmt.Errorf("%w of what was sent: %d of %d bytes", errNoAnswer, len(answer), len(payload))
	}
	return flow, nil
}

// ping sends an echo request (RFC 792, RFC 4443 §4.1) identified by the marker in its payload. The
// kernel fills in the checksum of ICMPv6 only.
func ping(to netip.Addr, payload []byte, deadline time.Time) (wire.Flow, error) {
	network, protocol, request, reply := "ip4:icmp", unix.IPPROTO_ICMP, byte(8), byte(0)
	if to.Is6() {
		network, protocol, request, reply = "ip6:ipv6-icmp", unix.IPPROTO_ICMPV6, 128, 129
	}
	connection, err := net.DialIP(network, nil, &net.IPAddr{IP: to.AsSlice()})
	if err != nil {
		return wire.Flow{}, err
	}
	defer connection.Close()
	identifier := binary.BigEndian.Uint16(payload[wire.MagicLen:])
	from, _ := netip.AddrFromSlice(connection.LocalAddr().(*net.IPAddr).IP)
	flow := wire.Flow{
		Protocol:    uint8(protocol),
		Source:      netip.AddrPortFrom(from.Unmap(), identifier),
		Destination: netip.AddrPortFrom(to, identifier),
	}
	message := EchoMessage(request, identifier, payload)
	// What comes back differs in type and, with it, checksum.
	want := EchoMessage(reply, identifier, payload)
	return flow, ask(connection, message, want[4:], deadline)
}

// EchoMessage is an ICMP message (RFC 792, RFC 4443 §4): type, code 0, checksum as for ICMPv4, identifier, sequence
// number 1, payload.
func EchoMessage(kind byte, identifier uint16, payload []byte) []byte {
	message := []byte{kind, 0, 0, 0}
	message = binary.BigEndian.AppendUint16(message, identifier)
	message = append(message, 0, 1) // sequence number
	message = append(message, payload...)
	binary.BigEndian.PutUint16(message[2:], checksum(message))
	return message
}

// checksum is the one of RFC 1071.
func checksum(message []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(message); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(message[i:]))
	}
	if len(message)%2 == 1 {
		sum += uint32(message[len(message)-1]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
