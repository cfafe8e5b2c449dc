package sweep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"warren/internal/lab/netns"
	"warren/internal/lab/proof"
)

const (
	// writeTime is how long the bytes of one write may take there and back: the kernel sends them again meanwhile.
	writeTime = 5 * time.Second
	// patience is how many writes may get stuck before the rest is not tried any more.
	patience = 3
)

// stream writes every size to a TCP connection that sends it back, one after the other. A size is the bytes of
// one write: what segments they travel in is up to TCP.
type stream struct {
	row  proof.Row
	port uint16
	body []byte

	connection *net.TCPConn // nil when there is none
	outcome    *outcome
}

// run goes on with a new connection after a write that got stuck.
func (s *stream) run(ctx context.Context, sizes Sizes) {
	defer s.hangUp()
	failures := 0
	for _, size := range sizes {
		if ctx.Err() != nil || failures == patience {
			return
		}
		s.outcome.tried[size] = true
		if err := s.exchange(size); err != nil {
			s.outcome.failure = err
			failures++
			s.hangUp()
			continue
		}
		s.outcome.delivered[size] = true
	}
}

func (s *stream) exchange(size int) error {
	if s.connection == nil {
		if err := s.dial(); err != nil {
			return err
		}
	}
	if err := s.connection.SetDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	if _, err := s.connection.Write(s.body[:size]); err != nil {
		return err
	}
	answer := make([]byte, size)
	if n, err := io.ReadFull(s.connection, answer); err != nil {
		return fmt.Errorf("%d of %d bytes came back: %w", n, size, err)
	}
	if !bytes.Equal(answer, s.body[:size]) {
		return errors.New("other bytes came back")
	}
	return nil
}

func (s *stream) dial() error {
	from, to := s.row.Ends()
	return netns.Do(from.Namespace, func() error {
		dialer := net.Dialer{Timeout: writeTime}
		dialer.SetMultipathTCP(false)
		connection, err := dialer.Dial("tcp", netip.AddrPortFrom(to.Address, s.port).String())
		if err == nil {
			s.connection = connection.(*net.TCPConn)
		}
		return err
	})
}

// hangUp resets the connection: a FIN would wait behind what does not get through.
func (s *stream) hangUp() {
	if s.connection != nil {
		_ = errors.Join(s.connection.SetLinger(0), s.connection.Close())
		s.connection = nil
	}
}
