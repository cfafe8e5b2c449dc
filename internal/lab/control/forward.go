package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
)

// Expose makes the API server answer on a loopback port of the caller's own namespace until ctx ends, and
// returns where.
func (p *Plane) Expose(ctx context.Context) (netip.AddrPort, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("listen for clients of the API server: %w", err)
	}
	dial := func(ctx context.Context) (net.Conn, error) { return p.Dial(ctx, "tcp", p.Server().String()) }
	go func() { _ = Forward(ctx, listener, dial) }()
	return listener.Addr().(*net.TCPAddr).AddrPort(), nil
}

// Forward carries every connection that a listener accepts to one that dial makes, until ctx ends; then it
// returns nil. It closes the listener.
func Forward(ctx context.Context, listener net.Listener, dial func(context.Context) (net.Conn, error)) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	defer listener.Close()
	var running sync.WaitGroup
	defer running.Wait()
	for {
		client, err := listener.Accept()
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept a client: %w", err)
		}
		running.Go(func() { carry(ctx, client, dial) })
	}
}

// carry copies both ways until one side has had enough.
func carry(ctx context.Context, client net.Conn, dial func(context.Context) (net.Conn, error)) {
	defer client.Close()
	server, err := dial(ctx)
	if err != nil {
		return // the client sees its connection closed, as with a server that is away
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })
	defer stop()
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			done <- struct{}{}
		}()
	}
	<-done
}
