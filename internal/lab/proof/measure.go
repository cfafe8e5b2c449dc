package proof

import (
	"context"
	"crypto/rand"
	"errors"
	"net/netip"
	"sync"
	"time"

	"warren/internal/lab"
	"warren/internal/lab/wire"
)

// Pairs of nodes that talk at the same time; rows of one pair run one after the other, so that
// WireGuard frames can be told apart by time.
const pairsAtOnce = 8

// After this many rows of one pair without an answer the others get less time: a lab in which nothing
// works must not take minutes to say so.
const (
	patience  = 3
	impatient = 500 * time.Millisecond
)

// measure sends the traffic of all rows and captures meanwhile.
func measure(ctx context.Context, l *lab.Lab, rows []Row, options Options) (measurement, error) {
	m := measurement{nodes: nodeAddresses(l.Topology)}
	markers := newMarkers()
	capture, err := wire.Listen(l.Topology.Wire, lab.WireBridge, wire.Options{Cluster: clusterOf(l.Topology), Magic: markers.magic})
	if err != nil {
		return m, err
	}
	opening, openErr := sing(capture, l.Topology.Nodes, markers.next())
	var sendErr error
	if openErr == nil && opening == "" {
		m.exchanges, sendErr = sendAll(ctx, rows, markers, options)
	}
	closing, closeErr := sing(capture, l.Topology.Nodes, markers.next())
	frames, captureErr := capture.Close()
	if err := errors.Join(openErr, sendErr, closeErr); err != nil {
		return m, err
	}
	m.frames, m.void = frames, first(opening, closing)
	if captureErr != nil {
		m.void = captureErr.Error()
	}
	return m, nil
}

// sendAll runs the rows, pairs of nodes side by side, and returns the exchanges in the order of rows.
func sendAll(ctx context.Context, rows []Row, markers *markerSource, options Options) ([]exchange, error) {
	servers, err := startEchoServers(rows)
	if err != nil {
		return nil, err
	}
	defer servers.Close()
	exchanges := make([]exchange, len(rows))
	byPair, order := map[pair][]int{}, []pair(nil)
	for i, row := range rows {
		exchanges[i] = exchange{row: row, marker: markers.next()}
		if len(byPair[row.pair()]) == 0 {
			order = append(order, row.pair())
		}
		byPair[row.pair()] = append(byPair[row.pair()], i)
	}
	var running sync.WaitGroup
	slots := make(chan struct{}, pairsAtOnce)
	for _, p := range order {
		slots <- struct{}{}
		running.Go(func() {
			sendPair(ctx, exchanges, byPair[p], options)
			<-slots
		})
	}
	running.Wait()
	return exchanges, ctx.Err()
}

// sendPair runs the rows of one pair of nodes one after the other.
func sendPair(ctx context.Context, exchanges []exchange, rows []int, options Options) {
	failures := 0
	for _, i := range rows {
		if ctx.Err() != nil {
			return
		}
		timeout := options.timeout()
		if failures >= patience {
			timeout = min(timeout, impatient)
		}
		exchanges[i] = send(exchanges[i].row, exchanges[i].marker, options.size(), timeout)
		if exchanges[i].failure != nil {
			failures++
		}
	}
}

// markerSource gives out markers with a common beginning.
type markerSource struct {
	magic [wire.MagicLen]byte
}

func newMarkers() *markerSource {
	var s markerSource
	_, _ = rand.Read(s.magic[:]) // never fails (crypto/rand)
	return &s
}

func (s *markerSource) next() wire.Marker {
	var marker wire.Marker
	copy(marker[:], s.magic[:])
	_, _ = rand.Read(marker[wire.MagicLen:])
	return marker
}

func nodeAddresses(topology lab.Topology) map[netip.Addr]string {
	nodes := map[netip.Addr]string{}
	for _, node := range topology.Nodes {
		for _, address := range node.Addresses {
			nodes[address] = node.Name
		}
	}
	return nodes
}

// clusterOf is the lab as somebody at the wire knows it.
func clusterOf(topology lab.Topology) wire.Cluster {
	cluster := wire.Cluster{MACs: map[wire.MAC]bool{}, Nodes: map[netip.Addr]bool{}, Port: lab.Port}
	for _, node := range topology.Nodes {
		cluster.MACs[wire.MAC(node.MAC)] = true
		cluster.Prefixes = append(cluster.Prefixes, node.Prefixes...)
		for _, address := range node.Addresses {
			cluster.Nodes[address] = true
			cluster.Prefixes = append(cluster.Prefixes, netip.PrefixFrom(address, address.BitLen()))
		}
	}
	return cluster
}
