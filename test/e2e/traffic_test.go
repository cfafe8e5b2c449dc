package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/lab"
	"warren/internal/lab/netns"
)

// interval between the packets of a stream: 200 a second.
const interval = 5 * time.Millisecond

// end is one end of a stream.
type end struct {
	namespace string
	address   netip.Addr
}

func hostOf(n lab.Node, family int) end { return end{n.Namespace, n.Addresses[family]} }

func podOf(n lab.Node, family int) end { return end{n.Pods[0].Namespace, n.Pods[0].Addresses[family]} }

// stream is UDP from one end to another, numbered, so that every lost packet is known.
type stream struct {
	name     string
	sender   net.Conn
	receiver net.PacketConn
	sent     int
	refused  int   // of these by the kernel,
	refusal  error // the last time for this reason
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

// startStream begins to send. The first packet has to arrive before it returns, so that no
// handshake is counted as a loss.
func startStream(t *testing.T, from, to end) *stream {
	t.Helper()
	s := &stream{
		name: fmt.Sprintf("%s to %s", from.address, to.address), received: map[uint32]bool{}, stop: make(chan struct{}),
	}
	err := netns.Do(to.namespace, func() (err error) {
		s.receiver, err = patient.ListenPacket(t.Context(), "udp", netip.AddrPortFrom(to.address, 0).String())
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
			if err != nil {
				s.refused++
				s.refusal = err
			}
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
		t.Errorf("stream %s: %d of %d packets lost, the first is number %d; %d could not be sent: %v", s.name, len(lost), s.sent, lost[0], s.refused, s.refusal)
	}
}

// conversation is a TCP connection on which numbered lines are answered, one after the other.
type conversation struct {
	name    string
	client  net.Conn
	rounds  int
	problem error
	stop    chan struct{}
	running sync.WaitGroup
}

// answerLimit is how long an answer may take: TCP sends again what was lost, so that a loss is a delay.
const answerLimit = 10 * time.Second

// startConversation connects and begins to talk.
func startConversation(t *testing.T, from, to end) *conversation {
	t.Helper()
	c := &conversation{name: fmt.Sprintf("%s to %s", from.address, to.address), stop: make(chan struct{})}
	var listener net.Listener
	err := netns.Do(to.namespace, func() (err error) {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(to.address, 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	c.running.Go(func() {
		server, err := listener.Accept()
		_ = listener.Close()
		if err == nil {
			_, _ = io.Copy(server, server)
			_ = server.Close()
		}
	})
	err = netns.Do(from.namespace, func() (err error) {
		c.client, err = net.DialTimeout("tcp", listener.Addr().String(), answerLimit)
		return err
	})
	if err != nil {
		_ = listener.Close()
		t.Fatal(err)
	}
	c.running.Go(c.talk)
	return c
}

func (c *conversation) talk() {
	defer c.client.Close()
	answer := make([]byte, 4)
	for {
		select {
		case <-c.stop:
			return
		case <-time.After(interval):
		}
		said := binary.BigEndian.AppendUint32(nil, uint32(c.rounds))
		_ = c.client.SetDeadline(time.Now().Add(answerLimit))
		if _, c.problem = c.client.Write(said); c.problem != nil {
			return
		}
		if _, c.problem = io.ReadFull(c.client, answer); c.problem != nil {
			return
		}
		if c.rounds++; string(answer) != string(said) {
			c.problem = fmt.Errorf("said % x, got % x", said, answer)
			return
		}
	}
}

// finish ends the conversation and reports whether it broke off.
func (c *conversation) finish(t *testing.T) {
	t.Helper()
	close(c.stop)
	c.running.Wait()
	if c.problem != nil || c.rounds < 10 {
		t.Errorf("conversation %s: after %d answers: %v", c.name, c.rounds, c.problem)
	}
}
