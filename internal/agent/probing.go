package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/api"
	"warren/internal/cluster"
	"warren/internal/config"
	"warren/internal/datapath"
	"warren/internal/netdev"
	"warren/internal/plan"
	"warren/internal/probe"
)

const (
	// fragmentAge is how old a fragment may be to say how packets of a peer arrive now.
	fragmentAge = time.Second
	// arrivalAge is how old a probe may be that waited for an agent.
	arrivalAge = 5 * time.Second
	// Peers whose paths change in a row are written together: every write looks at all entries.
	pathPause      = 20 * time.Millisecond
	longPathPause  = time.Second
	manyEntries    = 20_000
	answersAtOnce  = 256 // arrivals taken in one step of the loop
	arrivalsQueued = 1024
)

// probing is what this node asks its peers through the tunnel, and what it has learned of them. Only the
// loop touches it.
type probing struct {
	started  time.Duration
	own      netip.Addr
	tunnel   *netdev.Injector // nil without device
	ifindex  uint32
	peers    map[cluster.PublicKey]*probed
	keys     map[netip.Addr]cluster.PublicKey // by probe address
	schedule *probe.Schedule[cluster.PublicKey]
	// adopted is what the kernel did for peers when this agent found it.
	adopted map[cluster.PublicKey]plan.Path
	// touched are peers of which something may have changed since settle looked, at settled.
	touched map[cluster.PublicKey]bool
	settled time.Duration
	// doubted has for keys that are held back when their node's present key was asked because of them.
	doubted map[cluster.PublicKey]time.Duration
	// applied are peers whose path is being written.
	applied map[cluster.PublicKey]probe.Kernel
}

// probed is a peer with the endpoint for which its state holds.
type probed struct {
	*probe.Peer
	endpoint netip.AddrPort
	phase    probe.Phase // that was logged
	size     int         // that was logged
	// What the state was told last.
	mode     probe.Mode
	interval time.Duration
	bounds   probe.Path
	leaving  bool
}

func newProbing(own cluster.PublicKey) *probing {
	return &probing{
		started: monotonic(), own: probe.Address(own),
		peers: map[cluster.PublicKey]*probed{}, keys: map[netip.Addr]cluster.PublicKey{},
		schedule: probe.NewSchedule[cluster.PublicKey](probe.ScheduleOptions{}),
		doubted:  map[cluster.PublicKey]time.Duration{}, touched: map[cluster.PublicKey]bool{}, applied: map[cluster.PublicKey]probe.Kernel{},
	}
}

// monotonic is the clock of probes: that of the datapath, which says when they came.
func monotonic() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // fails for a bad pointer only
	return time.Duration(now.Nano())
}

func (p *probing) close() {
	if p.tunnel != nil {
		p.tunnel.Close()
	}
}

// use sends through the device from now on.
func (p *probing) use(ifindex uint32) error {
	if p.tunnel != nil && p.ifindex == ifindex {
		return nil
	}
	tunnel, err := netdev.OpenInjector(ifindex)
	if err != nil {
		return err
	}
	p.close()
	p.tunnel, p.ifindex = tunnel, ifindex
	return nil
}

// do changes the state of a peer. It reports whether there is one.
func (p *probing) do(key cluster.PublicKey, change func(*probe.Peer)) bool {
	known := p.schedule.Do(key, change)
	if known {
		p.touched[key] = true
	}
	return known
}

// adoptPaths makes what the kernel does for peers count until they have been asked: encryption that is there
// never stops because an agent started.
func (a *agent) adoptPaths() {
	if a.probing.adopted != nil {
		return
	}
	a.probing.adopted = map[cluster.PublicKey]plan.Path{}
	for prefix, key := range a.have.AllowedIPs {
		entry := a.have.Entries[prefix]
		// The older version, whose maps are not read, has encrypted to all that the device knows.
		entry.Send = entry.Send || a.data.Migrating()
		if path := (plan.Path{MTU: entry.MTU, Send: entry.Send, Enforce: entry.Enforce}); path != (plan.Path{}) {
			a.probing.adopted[key] = path
		}
	}
	a.apply(plan.Change{Paths: a.probing.adopted})
}

// followPeers begins to ask the peers that the device has by now, and forgets those that are gone. A peer is
// asked only when the disk has its record: an answer makes this node encrypt, and nothing else would tell it
// after a reboot how the peer is reached.
func (a *agent) followPeers(now time.Duration) {
	p, routes := a.probing, a.world.Routes()
	for key := range p.peers {
		if peer, ok := routes.Peers[key]; !ok || peer.Endpoint != p.peers[key].endpoint {
			p.schedule.Remove(key)
			delete(p.peers, key)
			delete(p.keys, probe.Address(key))
			delete(p.doubted, key)
		}
	}
	for key, peer := range routes.Peers {
		if _, known := p.peers[key]; !known && (a.memory.has(key) || routes.Candidates[key]) {
			p.peers[key] = &probed{Peer: probe.New(now, a.probeOptions(key, peer)), endpoint: peer.Endpoint}
			p.keys[probe.Address(key)] = key
			p.schedule.Put(key, p.peers[key].Peer)
			p.touched[key] = true
		}
	}
	a.adjustPeers(now)
	a.askAgain(now)
}

// adjustPeers tells the peers' states what this node has changed of itself.
func (a *agent) adjustPeers(now time.Duration) {
	p, mode, interval := a.probing, a.probeMode(), probe.Interval(len(a.probing.peers))
	for key, peer := range p.peers {
		bounds := a.pathBounds(peer.endpoint.Addr())
		leaving := a.world.Leaving(a.world.Routes().Peers[key].Node)
		if peer.mode == mode && peer.interval == interval && peer.bounds == bounds && peer.leaving == leaving {
			continue
		}
		peer.mode, peer.interval, peer.bounds, peer.leaving = mode, interval, bounds, leaving
		p.do(key, func(peer *probe.Peer) {
			peer.SetInterval(interval)
			peer.SetMode(now, mode)
			peer.SetPath(now, bounds)
		})
	}
}

func (a *agent) probeOptions(key cluster.PublicKey, peer plan.Peer) probe.Options {
	adopted := a.probing.adopted[key]
	delete(a.probing.adopted, key)
	bounds := a.pathBounds(peer.Endpoint.Addr())
	bounds.Size = int(adopted.MTU)
	return probe.Options{
		Mode: a.probeMode(), ModeSince: a.probing.started,
		Kernel: probe.Kernel{Sends: adopted.Send, Enforces: adopted.Enforce}, KernelMode: a.probeMode(),
		Path: bounds, Seed: rand.Uint64(),
	}
}

// pathBounds are the sizes that are possible to a tunnel endpoint.
func (a *agent) pathBounds(endpoint netip.Addr) probe.Path {
	largest := a.Config.MTU
	if largest == 0 {
		largest = plan.InnerMTU(a.linkTo(endpoint).MTU, endpoint.Is6())
	}
	return probe.Path{Largest: largest, Overhead: plan.Overhead(endpoint.Is6())}
}

func (a *agent) probeMode() probe.Mode {
	switch a.Config.Mode {
	case config.ModeObserve:
		return probe.Observe
	case config.ModeStrict:
		return probe.Strict
	}
	return probe.Permissive
}

// probe asks the peers that are due.
func (a *agent) probe(now time.Duration) {
	p := a.probing
	for _, due := range p.schedule.Tick(now) {
		p.touched[due.Key] = true
		for _, send := range due.Sends {
			p.send(due.Key, send.Message, send.Size)
		}
	}
}

// send puts a message into the tunnel. One that does not get there is lost, as others are on the way.
func (p *probing) send(key cluster.PublicKey, m probe.Message, size int) {
	packet, err := probe.Packet(p.own, probe.Address(key), cluster.DefaultPort, m, size)
	if err == nil && p.tunnel != nil {
		_ = p.tunnel.Send(packet)
	}
}

// arrived takes in what came out of the tunnel, and what waits behind it.
func (a *agent) arrived(arrival datapath.Arrival, more <-chan datapath.Arrival) {
	for range answersAtOnce {
		a.hear(arrival)
		select {
		case arrival = <-more:
			continue
		default:
		}
		return
	}
}

// hear takes in one message. WireGuard has seen to it that it comes from whom its address says.
func (a *agent) hear(arrival datapath.Arrival) {
	p := a.probing
	source, destination, message, err := probe.Parse(arrival.Data, arrival.Length)
	key, known := p.keys[source]
	if err != nil || !known || destination != p.own || monotonic()-arrival.Time > arrivalAge {
		return // of a later version, or of a peer that is just being added or removed, or from before this agent
	}
	p.touched[key] = true
	if message.Kind == probe.Reply {
		p.do(key, func(peer *probe.Peer) { peer.Reply(arrival.Time, message) })
		return
	}
	fragment := a.fragmentOf(p.peers[key].endpoint.Addr(), arrival.Time)
	if reply, ok := p.schedule.Request(arrival.Time, key, message, fragment); ok {
		p.send(key, reply, probe.MinSize)
	}
}

// fragmentOf returns the size of the first fragment in which packets from the tunnel endpoint arrived
// lately, 0 if they arrived whole.
func (a *agent) fragmentOf(endpoint netip.Addr, now time.Duration) int {
	size, at, ok, err := a.data.FirstFragment(endpoint)
	if err != nil || !ok || now-at > fragmentAge {
		return 0
	}
	return size
}

// next returns when something is due, with so many entries in the IPCache.
func (p *probing) next(entries int) time.Duration {
	next := p.schedule.Next()
	if at, ok := p.settleAt(entries); ok {
		next = min(next, at)
	}
	return next
}

// settleAt returns when paths that may have changed are to be written.
func (p *probing) settleAt(entries int) (at time.Duration, ok bool) {
	pause := pathPause
	if entries > manyEntries {
		pause = longPathPause
	}
	return p.settled + pause, len(p.touched) > 0
}

// settle writes what has become of the paths into the world.
func (a *agent) settle(now time.Duration) {
	p := a.probing
	if at, ok := p.settleAt(a.world.Cache().Len()); !ok || now < at {
		return
	}
	p.settled = now
	paths := map[cluster.PublicKey]plan.Path{}
	for key := range p.touched {
		peer, known := p.peers[key]
		if !known {
			continue
		}
		state := peer.State(now)
		a.logChange(key, peer, state)
		path := a.pathOf(key, state)
		paths[key] = path
		p.applied[key] = probe.Kernel{Sends: path.Send, Enforces: path.Enforce}
	}
	clear(p.touched)
	a.apply(plan.Change{Paths: paths})
	a.showNarrow()
}

// logChange logs what has become of a peer and of the path to it.
func (a *agent) logChange(key cluster.PublicKey, peer *probed, state probe.State) {
	if state.Size != peer.size {
		a.Log.Info("path measured", "node", a.world.Routes().Peers[key].Node, "endpoint", peer.endpoint, "mtu", state.Size, "before", peer.size)
		peer.size = state.Size
	}
	if state.Phase == peer.phase {
		return
	}
	level := slog.LevelInfo
	if state.Phase == probe.Stale || state.Phase == probe.Down {
		level = slog.LevelWarn
	}
	node := a.world.Routes().Peers[key].Node
	a.Log.Log(context.Background(), level, "peer is "+state.Phase.String(), "node", node, "endpoint", peer.endpoint, "before", peer.phase.String())
	peer.phase = state.Phase
}

func (a *agent) pathOf(key cluster.PublicKey, state probe.State) plan.Path {
	peer := a.probing.peers[key]
	path := plan.Path{Send: state.Send, Enforce: state.Enforce && !peer.leaving}
	if a.Config.MTU == 0 {
		path.MTU = uint16(state.Size)
		if state.Size == 0 {
			path.MTU = uint16(a.pathBounds(peer.endpoint.Addr()).Largest)
		}
	}
	return path
}

// confirmApplied tells the peers' states what the datapath does by now.
func (a *agent) confirmApplied(now time.Duration) {
	p := a.probing
	for key, kernel := range p.applied {
		p.schedule.Do(key, func(peer *probe.Peer) { peer.Applied(now, kernel) })
	}
	clear(p.applied)
}

// showNarrow says which paths do not carry what IPv6 needs.
func (a *agent) showNarrow() {
	now := monotonic()
	var found []api.Problem
	for _, peer := range a.probing.peers {
		if peer.State(now).Narrow {
			found = append(found, api.Problem{
				Where:   "path to " + peer.endpoint.Addr().String(),
				Message: "not even packets of 1280 bytes arrive whole through the tunnel; they leave in fragments",
				Remedy:  "raise the MTU of what lies between the two nodes, so that encrypted packets of 1360 bytes fit",
			})
		}
	}
	slices.SortFunc(found, func(a, b api.Problem) int { return cmp.Compare(a.Where, b.Where) })
	a.problems.set("paths", found, time.Now(), a.Log)
}

// listenForProbes passes on what comes out of the tunnel until ctx ends.
func (a *agent) listenForProbes(ctx context.Context, arrivals chan<- datapath.Arrival) error {
	source, err := a.data.Arrivals()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { source.Close() })
	defer stop()
	for {
		arrival, err := source.Read()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("listen for probes: %w", err)
		}
		select {
		case arrivals <- arrival:
		case <-ctx.Done():
			return nil
		}
	}
}
