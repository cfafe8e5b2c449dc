package e2e

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"warren/internal/lab/netns"
)

// interval between the packets of a stream: 200 a second.
const interval = 5 * time.Millisecond

// end is one end of a stream.
type end struct {
	namespace string
	address   netip.Addr
}

// stream is UDP from one end to another, numbered, so that every lost packet is known.
type stream struct {
	name     string
	sender   net.Conn
	receiver net.PacketConn
	sent     int
	received map[uint32]bool
	stop     chan struct{}
	running  sync.WaitGroup
}

// startStream begins to send. The first packet has to arrive before it returns, so that no
// handshake is counted as a loss.
func startStream(t *testing.T, from, to end) *stream {
	t.Helper()
	s := &stream{
		name: fmt.Sprintf("%s to %s", from.address, to.address), received: map[uint32]bool{}, stop: make(chan struct{}),
	}
	err := netns.Do(to.namespace, func() (err error) {
		s.receiver, err = net.ListenPacket("udp", netip.AddrPortFrom(to.address, 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = netns.Do(from.namespace, func() (err error) {
		s.sender, err = net.Dial("udp", s.receiver.LocalAddr().String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s.knock(t)
	s.running.Go(s.send)
	s.running.Go(s.receive)
	return s
}

// knock sends packets without a number until one arrives.
func (s *stream) knock(t *testing.T) {
	t.Helper()
	for range 50 {
		_, _ = s.sender.Write([]byte{0})
		_ = s.receiver.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if _, _, err := s.receiver.ReadFrom(make([]byte, 16)); err == nil {
			_ = s.receiver.SetReadDeadline(time.Time{})
			return
		}
	}
	t.Fatalf("stream %s: nothing arrives", s.name)
}

func (s *stream) send() {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
			_, err := s.sender.Write(binary.BigEndian.AppendUint32(nil, uint32(s.sent)))
			s.sent++ // a packet that could not be sent is lost, too
			_ = err
		}
	}
}

func (s *stream) receive() {
	buffer := make([]byte, 16)
	for {
		n, _, err := s.receiver.ReadFrom(buffer)
		if err != nil {
			return
		}
		if n == 4 {
			s.received[binary.BigEndian.Uint32(buffer)] = true
		}
	}
}

// finish ends the stream and reports every packet that did not arrive.
func (s *stream) finish(t *testing.T) {
	t.Helper()
	close(s.stop)
	_ = s.receiver.SetReadDeadline(time.Now().Add(2 * time.Second)) // what is still under way
	s.running.Wait()
	_, _ = s.sender.Close(), s.receiver.Close()
	if s.sent < 100 {
		t.Errorf("stream %s: only %d packets were sent", s.name, s.sent)
	}
	var lost []uint32
	for number := range uint32(s.sent) {
		if !s.received[number] {
			lost = append(lost, number)
		}
	}
	if len(lost) > 0 {
		t.Errorf("stream %s: %d of %d packets lost, the first is number %d", s.name, len(lost), s.sent, lost[0])
	}
}
