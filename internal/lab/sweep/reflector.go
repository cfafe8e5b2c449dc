package sweep

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"warren/internal/lab/netns"
	"warren/internal/lab/proof"
)

// reflectors send back what they get by UDP and TCP, at every end that rows send to. Their datagrams may be fragmented:
// "don't fragment" is a question about one direction.
type reflectors struct {
	ports   map[netip.Addr]uint16
	closers []io.Closer
	running sync.WaitGroup
}

func startReflectors(rows []proof.Row) (*reflectors, error) {
	r := &reflectors{ports: map[netip.Addr]uint16{}}
	for _, row := range rows {
		_, to := row.Ends()
		if r.ports[to.Address] != 0 {
			continue
		}
		if err := netns.Do(to.Namespace, func() error { return r.start(to.Address) }); err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}

// start listens to a port of TCP that the kernel chooses, and to the same of UDP.
func (r *reflectors) start(at netip.Addr) error {
	config := net.ListenConfig{Control: func(network, _ string, raw syscall.RawConn) error {
		return control(raw, func(fd int) error {
			if network[:3] == "tcp" {
				return nil
			}
			return errors.Join(enlarge(fd), fragment(fd, at, true))
		})
	}}
	config.SetMultipathTCP(false)
	connections, err := config.Listen(context.Background(), "tcp", netip.AddrPortFrom(at, 0).String())
	if err != nil {
		return err
	}
	r.closers = append(r.closers, connections)
	packets, err := config.ListenPacket(context.Background(), "udp", connections.Addr().String())
	if err != nil {
		return err
	}
	r.closers = append(r.closers, packets)
	r.ports[at] = connections.Addr().(*net.TCPAddr).AddrPort().Port()
	r.running.Go(func() { reflectPackets(packets.(*net.UDPConn)) })
	r.running.Go(func() { r.reflectConnections(connections) })
	return nil
}

func reflectPackets(packets *net.UDPConn) {
	buffer := make([]byte, 1<<16)
	for {
		n, from, err := packets.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = packets.WriteToUDPAddrPort(buffer[:n], from) // the sender tries again
		}
	}
}

func (r *reflectors) reflectConnections(connections net.Listener) {
	for {
		connection, err := connections.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		r.running.Go(func() {
			defer connection.Close()
			_, _ = io.Copy(connection, connection)
		})
	}
}

// Close ends all reflectors and waits for them. The connections must have been closed at the other end.
func (r *reflectors) Close() {
	for _, closer := range r.closers {
		_ = closer.Close()
	}
	r.running.Wait()
}
