package proof

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"warren/internal/lab/netns"
)

// EchoPort is the TCP and UDP port at which the ends of test traffic answer, for firewalls that have
// to let it in.
const EchoPort = 4242

// echoServers answer UDP and TCP at the addresses that rows send to. ICMP is answered by the kernel.
// Each listens at one address: a socket for all of them would answer from another one where the
// route back prefers that.
type echoServers struct {
	closers []io.Closer
	running sync.WaitGroup
}

func startEchoServers(rows []Row) (*echoServers, error) {
	servers := &echoServers{}
	started := map[End]bool{}
	for _, row := range rows {
		if started[row.destination] {
			continue
		}
		started[row.destination] = true
		if err := servers.start(row.destination); err != nil {
			servers.Close()
			return nil, fmt.Errorf("answer at %s of %s: %w", row.destination.Address, row.destination.Place, err)
		}
	}
	return servers, nil
}

func (s *echoServers) start(at End) error {
	var packets net.PacketConn
	var connections net.Listener
	address := netip.AddrPortFrom(at.Address, EchoPort).String()
	err := netns.Do(at.Namespace, func() (err error) {
		if packets, err = net.ListenPacket("udp", address); err == nil {
			var plain net.ListenConfig
			plain.SetMultipathTCP(false)
			connections, err = plain.Listen(context.Background(), "tcp", address)
		}
		return err
	})
	if packets != nil {
		s.closers = append(s.closers, packets)
	}
	if err != nil {
		return err
	}
	s.closers = append(s.closers, connections)
	s.running.Go(func() { echoPackets(packets) })
	s.running.Go(func() { s.echoConnections(connections) })
	return nil
}

func echoPackets(packets net.PacketConn) {
	buffer := make([]byte, 65536)
	for {
		n, from, err := packets.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = packets.WriteTo(buffer[:n], from) // a lost answer is what the sender reports
		}
	}
}

func (s *echoServers) echoConnections(connections net.Listener) {
	for {
		connection, err := connections.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		s.running.Go(func() {
			defer connection.Close()
			_ = connection.SetDeadline(time.Now().Add(10 * time.Second))
			_, _ = io.Copy(connection, connection)
		})
	}
}

// Close ends all servers and waits for them.
func (s *echoServers) Close() {
	for _, closer := range s.closers {
		_ = closer.Close()
	}
	s.running.Wait()
}
