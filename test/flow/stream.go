package flow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/lab/netns"
	"warren/internal/lab/proof"
)

// interval between the packets of a stream: 200 a second.
const interval = 5 * time.Millisecond

// Stream is UDP from one end to another, numbered, so that every lost packet is known.
type Stream struct {
	name     string
	sender   net.Conn
	receiver net.PacketConn
	sent     []time.Time // when, by number
	refused  int         // of these by the kernel,
	refusal  error       // the last time for this reason
	received map[uint32]bool
	stop     chan struct{}
	running  sync.WaitGroup
}

// patient sockets have room for what comes while this process waits for its turn: packets that it has not read yet
// are not lost on the way.
var patient = net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) (err error) {
	controlErr := conn.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20) })
	return errors.Join(controlErr, err)
}}

// StartStream begins to send. The first packet has to arrive before it returns, so that no
// handshake is counted as a loss.
func StartStream(t testing.TB, from, to proof.End) *Stream {
	t.Helper()
	s := &Stream{
		name: fmt.Sprintf("%s to %s", from.Address, to.Address), received: map[uint32]bool{}, stop: make(chan struct{}),
	}
	err := netns.Do(to.Namespace, func() (err error) {
		s.receiver, err = patient.ListenPacket(t.Context(), "udp", netip.AddrPortFrom(to.Address, 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = netns.Do(from.Namespace, func() (err error) {
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
func (s *Stream) knock(t testing.TB) {
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

func (s *Stream) send() {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
			_, err := s.sender.Write(binary.BigEndian.AppendUint32(nil, uint32(len(s.sent))))
			s.sent = append(s.sent, time.Now()) // a packet that could not be sent is lost, too
			if err != nil {
				s.refused++
				s.refusal = err
			}
		}
	}
}

func (s *Stream) receive() {
	for s.receiveOne() {
	}
}

// receiveOne waits for a packet and reports whether one came before the deadline.
func (s *Stream) receiveOne() bool {
	buffer := make([]byte, 16)
	n, _, err := s.receiver.ReadFrom(buffer)
	if n == 4 {
		s.received[binary.BigEndian.Uint32(buffer)] = true
	}
	return err == nil
}

// patience is how long no packet of a stream arrives before those that are missing are lost. A machine that has more to
// do than it can lets packets wait for seconds, in tunnels and in sockets, and loses none.
const patience = 5 * time.Second

// Finish ends the stream, waits for what is still under way, and reports every packet that did not arrive.
func (s *Stream) Finish(t testing.TB) {
	t.Helper()
	close(s.stop)
	_ = s.receiver.SetReadDeadline(time.Now())
	s.running.Wait()
	for came := true; came && len(s.received) < len(s.sent); {
		_ = s.receiver.SetReadDeadline(time.Now().Add(patience))
		came = s.receiveOne()
	}
	_, _ = s.sender.Close(), s.receiver.Close()
	if len(s.sent) < 100 {
		t.Errorf("stream %s: only %d packets were sent", s.name, len(s.sent))
	}
	var lost []time.Time
	for number, at := range s.sent {
		if !s.received[uint32(number)] {
			lost = append(lost, at)
		}
	}
	if len(lost) > 0 {
		t.Errorf("stream %s: %d of %d packets lost, sent from %s to %s, the last of all at %s; %d could not be sent: %v",
			s.name, len(lost), len(s.sent), clock(lost[0]), clock(lost[len(lost)-1]), clock(s.sent[len(s.sent)-1]), s.refused, s.refusal)
	}
}

// clock is a time as the agents' logs have it, to find what they did then.
func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }
