package netdev

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

func TestWatch(t *testing.T) {
	n := namespace(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changes, err := n.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	route := func() *netlink.Route {
		prefix := address("10.9.0.0/16").IPNet
		return &netlink.Route{LinkIndex: n.raw(t, "eth0").Attrs().Index, Dst: prefix}
	}
	steps := []struct {
		name   string
		change func()
	}{
		{"link added", func() { n.addVeth(t, "eth0", "wire") }},
		{"IPv4 address added", func() { n.addr(t, "eth0", "10.0.0.1/24") }},
		{"IPv6 address added", func() { n.addr(t, "eth0", "fd00::1/64") }},
		{"route added", func() { must(n.handle.RouteAdd(route())) }},
		{"route removed", func() { must(n.handle.RouteDel(route())) }},
		{"MTU changed", func() { must(n.SetMTU("eth0", 1400)) }},
		{"address removed", func() { must(n.handle.AddrDel(n.raw(t, "eth0"), address("10.0.0.1/24"))) }},
		{"link removed", func() { must(n.handle.LinkDel(n.raw(t, "eth0"))) }},
	}
	// What notifies by itself, of no change, would pass for everything below.
	quiet(t, changes, failurePause+5*settle)
	for _, step := range steps {
		quiet(t, changes, 5*settle)
		step.change()
		select {
		case _, open := <-changes:
			if !open {
				t.Fatalf("%s: the watch ended", step.name)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: no notification", step.name)
		}
	}
	cancel()
	for range changes { // ends when the watch does
	}
}

// quiet receives until nothing has come for that long: what the kernel still says of an earlier
// change must not pass for a notification of the next.
func quiet(t *testing.T, changes <-chan struct{}, period time.Duration) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		select {
		case <-changes:
		case <-time.After(period):
			return
		case <-limit:
			t.Fatal("the namespace does not come to rest")
		}
	}
}

// A receive buffer that is full loses messages: the next receive says ENOBUFS once, and after it the
// socket goes on. That is what watch relies on when it keeps the subscription.
func TestSubscriptionSurvivesOverrun(t *testing.T) {
	n := namespace(t)
	n.addVeth(t, "eth0", "wire")
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, watched...)
	if err != nil {
		t.Fatal(err)
	}
	source := subscription{socket}
	defer source.Close()
	if err := socket.SetReceiveBufferSize(8192, false); err != nil { // room for the messages of one address
		t.Fatal(err)
	}
	for i := range 200 {
		n.addr(t, "eth0", fmt.Sprintf("10.0.%d.1/24", i))
	}
	if err := awaitUntil(source, unix.ENOBUFS); err != nil {
		t.Fatalf("receive from a socket that overran: %v", err)
	}
	if err := awaitUntil(source, unix.EAGAIN); err != nil {
		t.Fatalf("empty the socket: %v", err)
	}
	n.addr(t, "eth0", "10.1.0.1/24")
	if err := source.Await(10 * time.Second); err != nil {
		t.Errorf("receive after the overrun: %v", err)
	}
}

// awaitUntil receives until the wanted error comes, and returns another one.
func awaitUntil(source messages, want error) error {
	for range 10000 {
		if err := source.Await(100 * time.Millisecond); errors.Is(err, want) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return fmt.Errorf("no %v", want)
}

// scripted gives one result per Await, each as soon as it is asked for; then it blocks until closed.
type scripted struct {
	results chan error
	close   func()
	closed  chan struct{}
}

func newScripted(results ...error) *scripted {
	s := &scripted{results: make(chan error, 100), closed: make(chan struct{})}
	s.close = sync.OnceFunc(func() { close(s.closed) })
	for _, result := range results {
		s.results <- result
	}
	return s
}

func (s *scripted) Close() { s.close() }

func (s *scripted) Await(timeout time.Duration) error {
	var expired <-chan time.Time
	if timeout > 0 {
		expired = time.After(timeout)
	}
	select {
	case err := <-s.results:
		return err
	case <-expired:
		return unix.EAGAIN
	case <-s.closed:
		return errors.New("closed")
	}
}

func TestWatchNotifications(t *testing.T) {
	broken := errors.New("the socket is broken")
	tests := []struct {
		name    string
		results []error
		// after is when the notification comes, from the first result on.
		after time.Duration
	}{
		{"a message", []error{nil}, settle},
		{"many messages at once are one notification", []error{nil, nil, nil, nil, nil, nil}, settle},
		{"an overrun", []error{unix.ENOBUFS}, settle},
		{"an overrun among messages", []error{nil, unix.ENOBUFS, nil}, settle},
		{"a failure is notified after a pause", []error{broken}, failurePause + settle},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				changes := make(chan struct{}, 1)
				source := newScripted(test.results...)
				start := time.Now()
				go watch(ctx, source, changes)

				<-changes
				if got := time.Since(start); got != test.after {
					t.Errorf("notified after %v, want %v", got, test.after)
				}
				time.Sleep(time.Minute)
				if len(changes) != 0 {
					t.Error("a second notification of the same change")
				}
				source.results <- nil
				<-changes // it is still watching

				cancel()
				if _, open := <-changes; open {
					t.Error("a notification after the end of the context")
				}
			})
		})
	}
}

// Nobody receives: what happens meanwhile is one notification, and it is not lost.
func TestWatchKeepsOneNotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := make(chan struct{}, 1)
		source := newScripted()
		go watch(t.Context(), source, changes)
		for range 20 {
			source.results <- nil
			time.Sleep(time.Second)
		}
		<-changes
		time.Sleep(time.Second)
		if len(changes) != 0 {
			t.Error("more than one notification was kept")
		}
	})
}
