package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// settle is how long a running connection may take to find its pace after a switch.
	settle = time.Second
	// window is how long the speed of a connection is looked at.
	window = 2 * time.Second
	// throughTunnel is how much the device has carried when the connection surely goes through it.
	throughTunnel = 1 << 20
)

// stream is a TCP connection that sends as fast as it goes while it is not paused.
type stream struct {
	client, server int
	arrived        atomic.Int64
	paused, ended  atomic.Bool
	ends           sync.WaitGroup
}

// stream connects the two places of a path and begins to send.
func (b *bed) stream(p path) (*stream, error) {
	client, server, err := b.connect(p)
	if err != nil {
		return nil, fmt.Errorf("connect %s to %s: %w", p.from, p.to, err)
	}
	s := &stream{client: client, server: server}
	s.ends.Go(s.send)
	s.ends.Go(s.receive)
	return s, nil
}

func (s *stream) send() {
	for buffer := make([]byte, 128<<10); !s.ended.Load(); {
		if s.paused.Load() {
			time.Sleep(time.Millisecond)
			continue
		}
		if _, err := unix.Write(s.client, buffer); err != nil && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	_ = unix.Shutdown(s.client, unix.SHUT_WR)
}

func (s *stream) receive() {
	for buffer := make([]byte, 256<<10); ; {
		n, err := unix.Read(s.server, buffer)
		if n <= 0 && !errors.Is(err, unix.EINTR) {
			return
		}
		s.arrived.Add(int64(max(n, 0)))
	}
}

// close ends the connection when what was sent has arrived.
func (s *stream) close() error {
	s.ended.Store(true)
	s.ends.Wait()
	return errors.Join(unix.Close(s.client), unix.Close(s.server))
}

// speed returns what arrives during the next window, in Gbit/s.
func (s *stream) speed() float64 {
	before, start := s.arrived.Load(), time.Now()
	time.Sleep(window)
	return float64(s.arrived.Load()-before) * 8 / 1e9 / time.Since(start).Seconds()
}

// beside returns the speed of a running connection from one settle after the switch on, divided by that of a new
// one which has had as long, each while the other is silent.
func (s *stream) beside(b *bed, p path) (ratio float64, err error) {
	time.Sleep(settle)
	running := s.speed()
	s.paused.Store(true)
	defer s.paused.Store(false)
	fresh, err := b.stream(p)
	if err != nil {
		return 0, err
	}
	time.Sleep(settle)
	ratio = running / fresh.speed()
	return ratio, fresh.close()
}

// switched are the ratios of one run along a path.
type switched struct{ on, off float64 }

// switchUnder switches encryption on and off again under a connection that was opened in clear.
func (b *bed) switchUnder(ctx context.Context, w warren, p path) (r switched, err error) {
	running, err := b.stream(p)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, running.close()) }()
	time.Sleep(settle)
	if err := errors.Join(w.enter(ctx, b), b.waitCarried(ctx, w)); err != nil {
		return r, errors.Join(err, w.leave(context.WithoutCancel(ctx), b))
	}
	r.on, err = running.beside(b, p)
	if err := errors.Join(err, w.leave(context.WithoutCancel(ctx), b)); err != nil {
		return r, err
	}
	r.off, err = running.beside(b, p)
	return r, err
}

// waitCarried waits until the connection goes through the tunnel.
func (b *bed) waitCarried(ctx context.Context, w warren) error {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		switch carried, err := b.carried(w.device()); {
		case err != nil || ctx.Err() != nil:
			return errors.Join(err, ctx.Err())
		case carried > throughTunnel:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%s has carried %d bytes after half a minute", w.device(), carried)
		}
	}
}

// switching measures what running connections notice, and writes it down.
func switching(ctx context.Context, b *bed, o options) error {
	w := warren{o.binary}
	results := map[string][]switched{}
	for turn := range o.runs {
		for _, p := range b.paths(w) {
			b.log.Info("switching", "run", turn+1, "of", o.runs, "path", p.name)
			r, err := b.switchUnder(ctx, w, p)
			if err != nil {
				return fmt.Errorf("run %d, %s: %w", turn+1, p.name, err)
			}
			results[p.name] = append(results[p.name], r)
		}
	}
	text := switchingTable(describeMachine(), b.paths(w), results)
	fmt.Print(text)
	return writeFiles(o.out, map[string]string{"switching.md": text})
}

func switchingTable(machine []string, paths []path, results map[string][]switched) string {
	var out strings.Builder
	fmt.Fprintf(&out, "# Running connections\n\nWritten by `make bench-switching`.\n\n")
	for _, text := range machine {
		fmt.Fprintf(&out, "- %s\n", text)
	}
	fmt.Fprintf(&out, "- a TCP connection opened in clear, under which encryption is switched on and then off; its speed during the %v"+
		" from one second after the switch, divided by that of a new connection\n\n", window)
	line(&out, []string{"path", "runs", "switched on, median", "least", "switched off, median", "least"})
	line(&out, slices.Repeat([]string{"---"}, 6))
	for _, p := range paths {
		var on, off []float64
		for _, r := range results[p.name] {
			on, off = append(on, r.on), append(off, r.off)
		}
		line(&out, []string{
			p.name, fmt.Sprint(len(on)), quotient(median(on)), quotient(slices.Min(on)), quotient(median(off)), quotient(slices.Min(off)),
		})
	}
	return out.String()
}
