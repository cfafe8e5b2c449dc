package proof

import (
	"context"
	"crypto/rand"
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"warren/internal/lab"
	"warren/internal/lab/wire"
)

// Pairs of nodes that talk at the same time. Rows of one pair run one after the other, each between two
// frames in clear, so that it can be told to which row a WireGuard frame belongs.
const pairsAtOnce = 8

// After this many rows of one pair without an answer the others get less time: a lab in which nothing
// works must not take minutes to say so.
const (
	patience  = 3
	impatient = 500 * time.Millisecond
)

// Measure sends the traffic of all rows that the filter of the options accepts, and captures meanwhile. The machines
// need not be a lab of this module's making, as long as they look like the topology. The error ErrNothing says that there
// is no row.
func Measure(ctx context.Context, topology lab.Topology, options Options) (Measurement, error) {
	m := Measurement{nodes: nodeAddresses(topology)}
	rows := Rows(topology, options.Filter)
	if len(rows) == 0 {
		return m, ErrNothing
	}
	var err error
	m.frames, err = watch(topology, func(capture *wire.Capture, markers *markerSource) (err error) {
		m.exchanges, err = sendAll(ctx, sender{capture, topology, options}, rows, markers)
		return err
	})
	if errors.Is(err, errUnheard) || errors.Is(err, wire.ErrIncomplete) {
		m.void, err = err.Error(), nil
	}
	return m, err
}

// Watch returns what crosses the wire while f runs. A frame in clear from each node is seen before and after, or there is
// an error: so one that is not among the frames was not there.
func Watch(topology lab.Topology, f func() error) ([]wire.Frame, error) {
	return watch(topology, func(*wire.Capture, *markerSource) error { return f() })
}

func watch(topology lab.Topology, f func(*wire.Capture, *markerSource) error) ([]wire.Frame, error) {
	markers := newMarkers()
	capture, err := wire.Listen(topology.Wire, topology.Bridges(), wire.Options{Cluster: ClusterOf(topology), Magic: markers.magic})
	if err != nil {
		return nil, err
	}
	err = choir(capture, topology.Nodes, markers.next())
	if err == nil {
		err = f(capture, markers)
	}
	if err == nil {
		err = choir(capture, topology.Nodes, markers.next())
	}
	frames, captureErr := capture.Close()
	return frames, errors.Join(err, captureErr)
}

// sender is what sending needs.
type sender struct {
	capture  *wire.Capture
	topology lab.Topology
	options  Options
}

// sendAll runs the rows, pairs of nodes side by side, and returns the exchanges in the order of rows.
func sendAll(ctx context.Context, s sender, rows []Row, markers *markerSource) ([]exchange, error) {
	servers, err := startEchoServers(rows)
	if err != nil {
		return nil, err
	}
	defer servers.Close()
	exchanges := make([]exchange, len(rows))
	pairs := map[pair][]*exchange{}
	for i, row := range rows {
		exchanges[i] = exchange{row: row, marker: markers.next(), opening: markers.next(), closing: markers.next()}
		pairs[row.pair()] = append(pairs[row.pair()], &exchanges[i])
	}
	var running errgroup.Group
	running.SetLimit(pairsAtOnce)
	for p, own := range pairs {
		running.Go(func() error {
			node, _ := s.topology.Node(p.a)
			return s.pair(ctx, node, own)
		})
	}
	return exchanges, errors.Join(running.Wait(), ctx.Err())
}

// pair runs the rows of one pair of nodes one after the other; the node sings before and after each,
// and is heard before it goes on. So what was sent and answered is in between.
func (s sender) pair(ctx context.Context, node lab.Node, exchanges []*exchange) error {
	bracket, err := newSinger(node)
	if err != nil {
		return err
	}
	defer bracket.Close()
	mark := func(canary wire.Marker) error {
		if err := bracket.sing(canary); err != nil {
			return err
		}
		return hear(s.capture, canary, node.Name)
	}
	failures := 0
	for _, e := range exchanges {
		timeout := s.options.timeout()
		if failures >= patience {
			timeout = min(timeout, impatient)
		}
		if err := errors.Join(ctx.Err(), mark(e.opening)); err != nil {
			return err
		}
		e.send(s.options.size(), timeout)
		if err := mark(e.closing); err != nil {
			return err
		}
		if e.failure != nil {
			failures++
		}
	}
	return nil
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

// ClusterOf is the lab as somebody at the wire knows it.
func ClusterOf(topology lab.Topology) wire.Cluster {
	cluster := wire.Cluster{MACs: map[wire.MAC]bool{}, Routers: map[netip.Addr]bool{}, Nodes: map[netip.Addr]bool{}, Port: lab.Port}
	if router := topology.Router; router != nil {
		for _, side := range []lab.RouterSide{router.Near, router.Far} {
			cluster.MACs[wire.MAC(side.MAC)] = true
			for _, address := range side.Addresses {
				cluster.Routers[address] = true
			}
		}
	}
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
