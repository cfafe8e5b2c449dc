package netdev

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// settle is how long Watch gathers changes before it notifies: an address that is added
	// brings a link, an address and two route messages within a few milliseconds, and a CNI
	// that starts a pod some dozens.
	settle = 50 * time.Millisecond
	// failurePause keeps a socket that fails again and again from turning into a busy loop.
	failurePause = time.Second
)

// watched are the multicast groups whose messages may change an answer of this package.
var watched = []uint{
	unix.RTNLGRP_LINK,
	unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
	unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
}

// Watch notifies after links, addresses or routes of the calling thread's network namespace have
// changed. A notification says only "look again": it stands for everything that happened since the
// previous one was received, and one is kept while nobody receives. The channel is closed when
// ctx ends, after the watch has released its socket.
//
// When the kernel drops messages because too many came at once (ENOBUFS), or the socket fails in
// another way, the watch notifies, since anything may have changed, and goes on: an overrun is
// an error of one receive, the subscription itself stays.
func (n *Netdev) Watch(ctx context.Context) (<-chan struct{}, error) {
	raw, err := nl.Subscribe(unix.NETLINK_ROUTE, watched...)
	if err != nil {
		return nil, fmt.Errorf("subscribe to link, address and route changes: %w", err)
	}
	changes := make(chan struct{}, 1)
	go watch(ctx, subscription{raw}, changes)
	return changes, nil
}

// messages is a subscribed socket, or its fake.
type messages interface {
	// Await returns nil when at least one message came (its content does not matter), and
	// EAGAIN when none did within the timeout; 0 waits for ever.
	Await(timeout time.Duration) error
	// Close makes a running and every later Await return; it may be repeated.
	Close()
}

func watch(ctx context.Context, source messages, changes chan<- struct{}) {
	defer close(changes)
	defer source.Close()
	defer context.AfterFunc(ctx, source.Close)()
	for {
		err := source.Await(0)
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			pause(ctx, failurePause)
		}
		drain(source, settle)
		if ctx.Err() != nil {
			return
		}
		select {
		case changes <- struct{}{}:
		default: // one is waiting already, and it stands for this change too
		}
	}
}

// drain receives for the given time, so that what comes together is notified once. Errors need no
// look: the notification follows in any case, and the next Await meets them again.
func drain(source messages, period time.Duration) {
	end := time.Now().Add(period)
	for left := period; left > 0; left = time.Until(end) {
		if err := source.Await(left); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
	}
}

func pause(ctx context.Context, period time.Duration) {
	timer := time.NewTimer(period)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

type subscription struct{ socket *nl.NetlinkSocket }

func (s subscription) Await(timeout time.Duration) error {
	limit := unix.NsecToTimeval(timeout.Nanoseconds()) // rounds up: only 0 becomes 0, which waits for ever
	if err := s.socket.SetReceiveTimeout(&limit); err != nil {
		return err
	}
	_, _, err := s.socket.Receive()
	return err
}

func (s subscription) Close() { s.socket.Close() }
