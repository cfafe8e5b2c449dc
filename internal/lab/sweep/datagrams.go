package sweep

import (
	"context"
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// A batch is sent at once and then waited for: so many datagrams and bytes do not overrun a receive buffer, nor the
	// queues of a tunnel that is slower than the sender.
	batchCount = 32
	batchBytes = 1 << 17
	batchWait  = 50 * time.Millisecond
	// After all batches the round waits for what is late. The next one, with what is still missing, waits twice as long.
	rounds    = 6
	firstWait = 100 * time.Millisecond
	// So many errors about earlier datagrams may be in the way of one.
	pendingErrors = 10
)

// datagrams sends datagrams of every size over one connected socket, many at a time. The size of an answer says to
// which of them it belongs.
type datagrams struct {
	socket net.Conn
	// overhead is the headers of IP and of the protocol, in bytes.
	overhead int
	// encode makes the message with so many bytes of payload.
	encode func(length int) []byte
	// decode returns the length of the payload; ok is false for what is no answer.
	decode func(answer []byte) (length int, ok bool)
	// mtu asks what the kernel knows of the path.
	mtu func() (int, error)

	outcome *outcome
	buffer  []byte
}

// run sends all sizes, and then those that the sender was told to send instead, which may be refused in their
// turn by smaller ones. When not even the smallest gets through, nothing else is tried.
func (d *datagrams) run(ctx context.Context, sizes Sizes) {
	d.settle(ctx, sizes[:1])
	if len(d.outcome.pending(sizes[:1])) > 0 {
		return
	}
	for d.settle(ctx, sizes); len(d.outcome.advised()) > 0 && ctx.Err() == nil; {
		d.settle(ctx, d.outcome.advised())
	}
}

// settle sends sizes until it is known of each what becomes of it, or until it counts as lost.
func (d *datagrams) settle(ctx context.Context, sizes Sizes) {
	wait := firstWait
	for range rounds {
		for rest := d.outcome.pending(sizes); len(rest) > 0; {
			if ctx.Err() != nil {
				return
			}
			n := batchLength(rest)
			d.send(rest[:n])
			d.receive(rest[:n], batchWait)
			rest = rest[n:]
		}
		d.receive(sizes, wait)
		wait *= 2
	}
}

// batchLength is how many of the sizes make a batch, at least one.
func batchLength(sizes Sizes) int {
	bytes := 0
	for i, size := range sizes {
		if bytes += size; i == batchCount || (i > 0 && bytes > batchBytes) {
			return i
		}
	}
	return len(sizes)
}

func (d *datagrams) send(sizes Sizes) {
	for _, size := range sizes {
		d.outcome.tried[size] = true
		if err := d.sendOne(size); err != nil {
			d.outcome.failure = err
		}
	}
}

// receive takes answers until none of the sizes is missing or none came for the time given.
func (d *datagrams) receive(sizes Sizes, wait time.Duration) {
	for len(d.outcome.pending(sizes)) > 0 {
		_ = d.socket.SetReadDeadline(time.Now().Add(wait))
		n, err := d.socket.Read(d.buffer)
		if errors.Is(err, unix.EMSGSIZE) {
			continue // about a datagram of before; the next send of that size is refused
		}
		if err != nil {
			return
		}
		if length, ok := d.decode(d.buffer[:n]); ok {
			d.outcome.delivered[length+d.overhead] = true
		}
	}
}

// sendOne sends one datagram. EMSGSIZE is about this one only where the kernel knows of a smaller MTU; otherwise it is what
// an ICMP error said of an earlier one (ip(7): pending errors are passed on by the next call).
func (d *datagrams) sendOne(size int) error {
	var err error
	for range pendingErrors {
		if _, err = d.socket.Write(d.encode(size - d.overhead)); !errors.Is(err, unix.EMSGSIZE) {
			return err
		}
		mtu, unknown := d.mtu()
		if unknown != nil {
			return unknown
		}
		if size > mtu {
			d.outcome.told[size] = mtu
			return nil
		}
	}
	return err
}
