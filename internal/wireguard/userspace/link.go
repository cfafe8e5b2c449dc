package userspace

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/tun"
)

// link is the TUN device without its ups and downs. WireGuard in user space opens its UDP sockets
// when the link comes up, where a taken port is nobody's error any more, and forgets all sessions
// when it goes down. Warren's is up from the start: a taken port is the error of the request
// that asked for it, and a link that was set down for a moment comes back with its sessions.
type link struct {
	tun.Device
	events chan tun.Event
	mtu    atomic.Int64
}

// createLink makes a TUN device; it is gone when it is closed or the process ends. The name must be
// free in this network namespace.
func createLink(name string, mtu int) (*link, error) {
	device, err := tun.CreateTUN(name, mtu)
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("create TUN device %s: %w: another tunnel process has it", name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("create TUN device %s: %w", name, err)
	}
	l := &link{Device: device, events: make(chan tun.Event)}
	l.mtu.Store(int64(mtu))
	go l.forward()
	return l, nil
}

// Read implements tun.Device: packets as the local machine sends them, their checksums right (avoidZeroChecksum) and their
// fragments small enough (recut).
func (l *link) Read(buffers [][]byte, sizes []int, offset int) (int, error) {
	n, err := l.Device.Read(buffers, sizes, offset)
	if n == 1 { // several are segments of one size that the kernel chose
		n = recut(buffers, sizes, offset, int(l.mtu.Load()))
	}
	for i := range n {
		avoidZeroChecksum(buffers[i][offset : offset+sizes[i]])
	}
	return n, err
}

// Events implements tun.Device.
func (l *link) Events() <-chan tun.Event { return l.events }

// forward ends when the TUN device is closed.
func (l *link) forward() {
	defer close(l.events)
	for event := range l.Device.Events() {
		if event&tun.EventMTUUpdate != 0 {
			if mtu, err := l.MTU(); err == nil {
				l.mtu.Store(int64(mtu))
			}
			l.events <- tun.EventMTUUpdate
		}
	}
}
