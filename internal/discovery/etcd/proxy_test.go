package etcd

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy is a way to etcd that a test cuts, mends and watches.
type proxy struct {
	address string
	to      string
	bytes   atomic.Int64 // carried, both ways

	mu          sync.Mutex
	broken      bool
	connections []net.Conn
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{address: listener.Addr().String(), to: to}
	t.Cleanup(func() { _ = listener.Close(); p.cut() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			p.carry(from)
		}
	}()
	return p
}

// carry joins a connection to one of its own, unless the way is cut.
func (p *proxy) carry(from net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	to, err := net.Dial("tcp", p.to)
	if err != nil || p.broken {
		_ = from.Close()
		return
	}
	p.connections = append(p.connections, from, to)
	go p.copy(from, to)
	go p.copy(to, from)
}

func (p *proxy) copy(to, from net.Conn) {
	_, _ = io.Copy(to, io.TeeReader(from, counter{&p.bytes}))
	_ = to.Close()
	_ = from.Close()
}

type counter struct{ bytes *atomic.Int64 }

func (c counter) Write(data []byte) (int, error) {
	c.bytes.Add(int64(len(data)))
	return len(data), nil
}

// cut ends every connection, and those to come.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = true
	for _, connection := range p.connections {
		_ = connection.Close()
	}
	p.connections = nil
}

func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = false
}
