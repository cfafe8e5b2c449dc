package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/lab/netns"
)

// figure is one measured value.
type figure struct {
	metric
	value float64
}

// metric is what a value is of: a row of the table.
type metric struct {
	path, name, unit string
	// better says which way is better.
	better direction
}

type direction int

const (
	higher direction = iota
	lower
)

// bulk sends TCP as fast as it goes. It is an error when less than that went through the setting's device:
// the figures would be another setting's.
func (b *bed) bulk(ctx context.Context, s setting, p path, streams int, length time.Duration) ([]figure, error) {
	before, err := b.usage(s)
	if err != nil {
		return nil, err
	}
	text, err := b.iperf(ctx, p, streams, forTime(length)...)
	if err != nil {
		return nil, err
	}
	after, err := b.usage(s)
	if err != nil {
		return nil, err
	}
	t, err := parseTransfer(text)
	if err != nil {
		return nil, err
	}
	used := after.minus(before)
	if s.device() != "" && float64(used.carried) < t.bytes {
		return nil, fmt.Errorf("%.0f bytes were sent, and only %d went through %s", t.bytes, used.carried, s.device())
	}
	return t.figures(p.name, fmt.Sprintf("TCP, %d stream%s", streams, plural(streams)), used), nil
}

// iperf sends TCP along a path with iperf3, as much as the arguments say, and returns its report.
func (b *bed) iperf(ctx context.Context, p path, streams int, howMuch ...string) (string, error) {
	args := []string{"iperf3", "--client", p.address.String(), "--json", "--parallel", fmt.Sprint(streams), "--connect-timeout", "5000"}
	text, err := b.output(ctx, p.from, append(args, howMuch...)...)
	if err != nil {
		return "", fmt.Errorf("%w%s", err, text)
	}
	return text, nil
}

// forTime: iperf3 knows whole seconds only.
func forTime(length time.Duration) []string {
	return []string{"--time", fmt.Sprint(int(length.Seconds()))}
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

// transfer is what iperf3 says of one.
type transfer struct {
	bytes, bitsPerSecond, retransmits float64
}

func parseTransfer(text string) (transfer, error) {
	var report struct {
		End struct {
			Received struct {
				Bytes         float64 `json:"bytes"`
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
			Sent struct {
				Retransmits float64 `json:"retransmits"`
			} `json:"sum_sent"`
		} `json:"end"`
		Error string `json:"error"`
	}
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		return transfer{}, fmt.Errorf("read what iperf3 says: %w", err)
	}
	received := report.End.Received
	if report.Error != "" || received.Bytes == 0 {
		return transfer{}, fmt.Errorf("iperf3 received %.0f bytes: %s", received.Bytes, report.Error)
	}
	return transfer{received.Bytes, received.BitsPerSecond, report.End.Sent.Retransmits}, nil
}

const gibibyte = 1 << 30

func (t transfer) figures(path, name string, used usage) []figure {
	return []figure{
		{metric{path, name, "Gbit/s", higher}, t.bitsPerSecond / 1e9},
		{metric{path, name + ", CPU of the machine", "s/GiB", lower}, used.machine.Seconds() / t.bytes * gibibyte},
		{metric{path, name + ", CPU of the tunnel processes", "s/GiB", lower}, used.tunnels.Seconds() / t.bytes * gibibyte},
		{metric{path, name + ", sent again", "segments", lower}, t.retransmits},
	}
}

// exchange sends one byte to and fro over TCP, again as soon as it is back. Both ends block in system
// calls of threads of their own: nothing of Go's scheduler is measured.
func (b *bed) exchange(p path, length time.Duration) ([]figure, error) {
	client, server, err := b.connect(p)
	if err != nil {
		return nil, fmt.Errorf("connect %s to %s: %w", p.from, p.to, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for buffer := make([]byte, 1); pass(server, buffer, unix.Read) == nil && pass(server, buffer, unix.Write) == nil; {
		}
	}()
	times, err := exchangeFor(client, length)
	err = errors.Join(err, unix.Close(client))
	<-done
	if err := errors.Join(err, unix.Close(server)); err != nil {
		return nil, fmt.Errorf("exchange between %s and %s: %w", p.from, p.to, err)
	}
	return exchangeFigures(p.name, times), nil
}

// exchangeFor returns how long each round took.
func exchangeFor(client int, length time.Duration) (times []time.Duration, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	buffer := make([]byte, 1)
	for start, now := time.Now(), time.Now(); now.Sub(start) < length; {
		if err := errors.Join(pass(client, buffer, unix.Write), pass(client, buffer, unix.Read)); err != nil {
			return nil, err
		}
		next := time.Now()
		times = append(times, next.Sub(now))
		now = next
	}
	return times, nil
}

// errEnd: the other end is gone, or silent for ten seconds.
var errEnd = errors.New("connection ended")

// pass reads or writes one byte.
func pass(fd int, buffer []byte, call func(int, []byte) (int, error)) error {
	for {
		n, err := call(fd, buffer)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n == 0:
			return errEnd
		default:
			return nil
		}
	}
}

func exchangeFigures(path string, times []time.Duration) []figure {
	var sum time.Duration
	for _, t := range times {
		sum += t
	}
	slices.Sort(times)
	at := func(percent int) float64 { return float64(times[len(times)*percent/100]) / float64(time.Microsecond) }
	const name = "request/response"
	return []figure{
		{metric{path, name, "1/s", higher}, float64(len(times)) / sum.Seconds()},
		{metric{path, name + ", p50", "µs", lower}, at(50)},
		{metric{path, name + ", p99", "µs", lower}, at(99)},
	}
}

// connect returns the two ends of a TCP connection along a path, as blocking sockets.
func (b *bed) connect(p path) (client, server int, err error) {
	listener, err := b.socket(p.to, func(fd int) error {
		return errors.Join(unix.Bind(fd, sockaddr(netip.AddrPortFrom(p.address, 0))), unix.Listen(fd, 1))
	})
	if err != nil {
		return 0, 0, err
	}
	defer unix.Close(listener)
	at, err := unix.Getsockname(listener)
	if err != nil {
		return 0, 0, err
	}
	client, err = b.socket(p.from, func(fd int) error { return unix.Connect(fd, at) })
	if err != nil {
		return 0, 0, err
	}
	server, _, err = unix.Accept4(listener, unix.SOCK_CLOEXEC)
	if err == nil {
		err = prepareSocket(server)
	}
	if err != nil {
		_ = unix.Close(client)
	}
	return client, server, err
}

// socket makes a TCP socket in a place and does something with it.
func (b *bed) socket(name string, do func(fd int) error) (fd int, err error) {
	place, err := b.Place(name)
	if err != nil {
		return 0, err
	}
	err = netns.Do(place.Namespace, func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err := errors.Join(prepareSocket(fd), do(fd)); err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		return nil
	})
	return fd, err
}

// prepareSocket: small segments leave at once, and nothing blocks for ever.
func prepareSocket(fd int) error {
	patience := unix.Timeval{Sec: 10}
	return errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &patience))
}

func sockaddr(at netip.AddrPort) unix.Sockaddr {
	return &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}
}
