package flow

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"warren/internal/lab/netns"
	"warren/internal/lab/proof"
)

// Conversation is a TCP connection on which numbered lines are answered, one after the other.
type Conversation struct {
	name    string
	client  net.Conn
	rounds  int
	problem error
	stop    chan struct{}
	running sync.WaitGroup
}

// answerLimit is how long an answer may take: TCP sends again what was lost, so that a loss is a delay.
const answerLimit = 10 * time.Second

// StartConversation connects and begins to talk.
func StartConversation(t testing.TB, from, to proof.End) *Conversation {
	t.Helper()
	c := &Conversation{name: fmt.Sprintf("%s to %s", from.Address, to.Address), stop: make(chan struct{})}
	var listener net.Listener
	err := netns.Do(to.Namespace, func() (err error) {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(to.Address, 0).String())
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
	err = netns.Do(from.Namespace, func() (err error) {
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

func (c *Conversation) talk() {
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

// Finish ends the conversation and reports whether it broke off.
func (c *Conversation) Finish(t testing.TB) {
	t.Helper()
	close(c.stop)
	c.running.Wait()
	if c.problem != nil || c.rounds < 10 {
		t.Errorf("conversation %s: after %d answers: %v", c.name, c.rounds, c.problem)
	}
}
