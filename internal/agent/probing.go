package agent

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/api"
	"warren/internal/cluster"
	"warren/internal/datapath"
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
	mode     cluster.Mode  // of this node
	since    time.Duration // when the mode came into force; 0: none has yet
	peers    map[channel]*probed
	keys     map[netip.Addr]plan.Peer // by probe address
	schedule *probe.Schedule[channel]
	// adopted is what the kernel does for peers of which there is no state: when this agent found it, or since they moved.
	adopted map[channel]plan.Path
	// touched are peers of which something may have changed since settle looked, at settled.
	touched map[channel]bool
	settled time.Duration
	// doubted has for keys that are held back when their node's present key was asked because of them.
	doubted map[cluster.PublicKey]time.Duration
	// applied are peers whose path is being written.
	applied map[channel]probe.Kernel
}

// channel is the way to one key of a peer with one own key: that of the slot.
type channel struct {
	slot plan.Slot
	peer cluster.PublicKey
}

// probed is a channel with the endpoint for which its state holds.
type probed struct {
	*probe.Peer
	node     cluster.NodeID
	endpoint netip.AddrPort
	phase    probe.Phase // that was logged
	size     int         // that was logged
	narrow   bool        // not even the smallest size arrives whole, when it was looked at last
	// What the state was told last.
	mode     cluster.Mode
	interval time.Duration
	bounds   probe.Path
	leaving  bool
	serves   bool // this node, an API server
}

func newProbing() *probing {
	return &probing{
		peers: map[channel]*probed{}, keys: map[netip.Addr]plan.Peer{},
		schedule: probe.NewSchedule[channel](probe.ScheduleOptions{}),
		doubted:  map[cluster.PublicKey]time.Duration{}, touched: map[channel]bool{}, applied: map[channel]probe.Kernel{},
	}
}

// monotonic is the clock of probes: that of the datapath, which says when they came. A test has one that it can put forward.
var monotonic = func() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // fails for a bad pointer only
	return time.Duration(now.Nano())
}

// do changes the state of a channel. It reports whether there is one.
func (p *probing) do(c channel, change func(*probe.Peer)) bool {
	known := p.schedule.Do(c, change)
	if known {
		p.touched[c] = true
	}
	return known
}

// channels yields those to a key of a peer: one for each own key.
func (p *probing) channels(key cluster.PublicKey) iter.Seq2[channel, *probed] {
	return func(yield func(channel, *probed) bool) {
		for slot := range plan.Slot(plan.Slots) {
			c := channel{slot, key}
			if peer, known := p.peers[c]; known && !yield(c, peer) {
				return
			}
		}
	}
}

// adoptPaths makes what the kernel does for peers count until they have been asked: encryption that is there
// never stops because an agent started.
func (a *agent) adoptPaths() {
	if a.probing.adopted != nil {
		return
	}
	a.probing.adopted = map[channel]plan.Path{}
	paths := map[cluster.PublicKey]plan.Path{}
	for _, t := range a.tunnelsInUse() {
		for prefix, key := range t.have.AllowedIPs {
			entry := a.have.Entries[prefix]
			// The older version, whose maps are not read, has encrypted to all that the device knows.
			entry.Send = entry.Send || a.data.Migrating()
			path := plan.Path{MTU: entry.MTU, Send: entry.Send, Enforce: entry.Enforce, Slot: entry.Slot}
			if path != (plan.Path{}) && path.Slot == t.slot {
				a.probing.adopted[channel{t.slot, key}], paths[key] = path, path
			}
		}
	}
	a.apply(plan.Change{Paths: paths})
}

// followPeers begins to ask the peers that the devices have by now, and forgets those that are gone. A peer is
// asked only when the disk has its record: an answer makes this node encrypt, and nothing else would tell it
// after a reboot how the peer is reached.
func (a *agent) followPeers(now time.Duration) {
	if p := a.probing; p.since == 0 || p.mode != a.Config.Mode {
		p.mode, p.since = a.Config.Mode, now
	}
	a.followChannels(now)
	a.followAddresses()
	a.adjustPeers(now)
	a.askAgain(now)
}

// followChannels has a state for each channel that is wanted. One whose endpoint moves begins anew, and what the datapath
// does for it goes on: where a peer is says nothing of what it decrypts. One whose key is another node's now just begins anew.
func (a *agent) followChannels(now time.Duration) {
	p, want := a.probing, a.wantedChannels()
	for c, peer := range p.peers {
		next, wanted := want[c]
		same := wanted && next.Node == peer.node
		if same && next.Endpoint == peer.endpoint {
			continue
		}
		p.schedule.Remove(c)
		delete(p.peers, c)
		delete(p.doubted, c.peer)
		if same {
			state := peer.State(now)
			p.adopted[c] = plan.Path{Send: state.Send, Enforce: state.Enforce}
		}
	}
	for c, peer := range want {
		if _, known := p.peers[c]; !known {
			p.peers[c] = &probed{Peer: a.beginPeer(now, c, peer), node: peer.Node, endpoint: peer.Endpoint}
			p.schedule.Put(c, p.peers[c].Peer)
			p.touched[c] = true
		}
	}
}

// wantedChannels are those by which peers are to be asked, with the peer of each. One's own key that is
// withdrawn answers nobody, so that nobody begins with it. Who is asked or encrypted to
// already stays so, whatever the disk has.
func (a *agent) wantedChannels() map[channel]plan.Peer {
	routes, published := a.world.Routes(), a.published()
	want := make(map[channel]plan.Peer, len(routes.Peers))
	for _, t := range a.tunnelsInUse() {
		if !slices.Contains(published, t.key) {
			continue
		}
		for key, peer := range routes.Peers {
			c := channel{t.slot, key}
			_, asked := a.probing.peers[c]
			_, adopted := a.probing.adopted[c]
			if t.slot.Holds(peer.Epoch) && (asked || adopted || a.memory.has(key) || routes.Candidates[key]) {
				want[c] = peer.In(t.slot)
			}
		}
	}
	return want
}

// followAddresses finds the peers again by the addresses that they ask from.
func (a *agent) followAddresses() {
	p := a.probing
	for addr, peer := range p.keys {
		if next, ok := a.world.Routes().Peers[peer.Key]; !ok || next != peer {
			delete(p.keys, addr)
		}
	}
	known := make(map[cluster.PublicKey]bool, len(p.keys))
	for _, peer := range p.keys {
		known[peer.Key] = true
	}
	for c := range p.peers {
		if !known[c.peer] {
			p.keys[probe.Address(c.peer)] = a.world.Routes().Peers[c.peer]
			known[c.peer] = true
		}
	}
}

// adjustPeers tells the peers' states what this node has changed of itself.
func (a *agent) adjustPeers(now time.Duration) {
	p, mode, interval := a.probing, a.Config.Mode, probe.Interval(len(a.probing.peers))
	for c, peer := range p.peers {
		bounds := a.pathBounds(peer.endpoint.Addr())
		leaving, serves := a.world.Leaving(peer.node), a.serves()
		if peer.mode == mode && peer.interval == interval && peer.bounds == bounds && peer.leaving == leaving && peer.serves == serves {
			continue
		}
		peer.mode, peer.interval, peer.bounds, peer.leaving, peer.serves = mode, interval, bounds, leaving, serves
		p.do(c, func(peer *probe.Peer) {
			peer.SetInterval(interval)
			peer.SetMode(now, mode)
			peer.SetPath(now, bounds)
		})
	}
}

// beginPeer returns the state of a channel that begins. Of the channels to a node several may have been answered; the peer
// is told of one alone that everything comes by it.
func (a *agent) beginPeer(now time.Duration, c channel, peer plan.Peer) *probe.Peer {
	options := a.probeOptions(c, peer)
	state := probe.New(now, options)
	used, _ := a.world.KeyInUse(peer.Node)
	inUse := channel{a.world.Routes().Paths[used.Public].Slot, used.Public}
	options.Kernel.Sends = options.Kernel.Sends && c == inUse
	state.Applied(now, options.Kernel)
	return state
}

func (a *agent) probeOptions(c channel, peer plan.Peer) probe.Options {
	adopted := a.probing.adopted[c]
	delete(a.probing.adopted, c)
	bounds := a.pathBounds(peer.Endpoint.Addr())
	bounds.Size = cmp.Or(int(adopted.MTU), a.sizeTo(peer.Node))
	return probe.Options{
		Mode: a.Config.Mode, ModeSince: a.probing.since, Epoch: peer.Epoch,
		Kernel: probe.Kernel{Sends: adopted.Send, Enforces: adopted.Enforce}, KernelMode: a.Config.Mode,
		Path: bounds, Seed: rand.Uint64(),
	}
}

// sizeTo returns what another channel to the same node has found of its path, 0: nothing.
func (a *agent) sizeTo(node cluster.NodeID) int {
	now := monotonic()
	for _, key := range a.world.PeerKeys(node) {
		for _, peer := range a.probing.channels(key.Public) {
			if size := peer.State(now).Size; size != 0 {
				return size
			}
		}
	}
	return 0
}

// pathBounds are the sizes that are possible to a tunnel endpoint.
func (a *agent) pathBounds(endpoint netip.Addr) probe.Path {
	largest := a.Config.MTU
	if largest == 0 {
		largest = plan.InnerMTU(a.linkTo(endpoint).MTU, endpoint.Is6())
	}
	return probe.Path{Largest: largest, Overhead: plan.Overhead(endpoint.Is6())}
}

// probe asks the peers that are due.
func (a *agent) probe(now time.Duration) {
	p := a.probing
	for _, due := range p.schedule.Tick(now) {
		p.touched[due.Key] = true
		for _, send := range due.Sends {
			a.send(due.Key, send.Message, send.Size)
		}
	}
}

// send puts a message into the tunnel. One that does not get there is lost, as others are on the way.
func (a *agent) send(c channel, m probe.Message, size int) {
	t := a.tunnels[c.slot]
	if t == nil || t.injector == nil {
		return
	}
	packet, err := probe.Packet(t.address, probe.Address(c.peer), cluster.DefaultPort, m, size)
	if err == nil {
		_ = t.injector.Send(packet)
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
	if err != nil || monotonic()-arrival.Time > arrivalAge {
		return // of a later version, or from before this agent
	}
	c, known := a.channelBetween(source, destination)
	if !known {
		return // of a peer that is just being added or removed
	}
	p.touched[c] = true
	if message.Kind == probe.Reply {
		p.do(c, func(peer *probe.Peer) { peer.Reply(arrival.Time, message) })
		return
	}
	fragment := a.fragmentOf(p.peers[c].endpoint.Addr(), arrival.Time)
	if reply, ok := p.schedule.Request(arrival.Time, c, message, fragment); ok {
		a.send(c, reply, probe.MinSize)
	}
}

// channelBetween returns the channel of a message by its addresses: that of the peer's key, and that of
// this node's.
func (a *agent) channelBetween(source, destination netip.Addr) (channel, bool) {
	peer := a.probing.keys[source]
	for c := range a.probing.channels(peer.Key) {
		if t := a.tunnels[c.slot]; t != nil && t.address == destination {
			return c, true
		}
	}
	return channel{}, false
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
	nodes := map[cluster.NodeID]bool{}
	for c := range p.touched {
		if peer, known := p.peers[c]; known {
			state := peer.State(now)
			a.logChange(c, peer, state)
			peer.narrow, nodes[peer.node] = state.Narrow, true
		}
	}
	clear(p.touched)
	paths := map[cluster.PublicKey]plan.Path{}
	for node := range nodes {
		a.decide(node, now, paths)
	}
	a.apply(plan.Change{Paths: paths})
	a.showNarrow()
}

// logChange logs what has become of a peer and of the path to it.
func (a *agent) logChange(c channel, peer *probed, state probe.State) {
	if state.Size != peer.size {
		a.Log.Info("path measured", "node", peer.node, "endpoint", peer.endpoint, "mtu", state.Size, "before", peer.size)
		peer.size = state.Size
	}
	if state.Phase == peer.phase {
		return
	}
	level := slog.LevelInfo
	if state.Phase == probe.Stale || state.Phase == probe.Down {
		level = slog.LevelWarn
	}
	a.Log.Log(context.Background(), level, "peer is "+state.Phase.String(), "node", peer.node, "endpoint", peer.endpoint,
		"device", c.slot.Device(a.Config.Device), "before", peer.phase.String())
	peer.phase = state.Phase
}

// decide adds the paths to a node. Of the channels by which it may be sent to, those with the newest keys are
// used: the others may go. Everything goes by one, so that what the peer is told of each is all that it needs
// to know of it.
func (a *agent) decide(node cluster.NodeID, now time.Duration, paths map[cluster.PublicKey]plan.Path) {
	keys := a.world.PeerKeys(node)
	if len(keys) == 0 {
		return
	}
	chosen, state := a.choose(keys, now)
	path := a.pathOf(chosen, state)
	path.Silent = path.Send && a.serves()
	leaving := a.world.Leaving(node)
	for _, key := range keys {
		paths[key.Public] = plan.Path{}
		path.Silent = path.Silent && !a.answers(node, key.Public, now)
		for slot := range plan.Slot(plan.Slots) {
			path.Enforce = path.Enforce || !leaving && a.stateOf(channel{slot, key.Public}, now).Enforce
		}
	}
	paths[chosen.peer] = path
	for _, key := range keys {
		for c := range a.probing.channels(key.Public) {
			a.probing.applied[c] = probe.Kernel{Sends: path.Send && c == chosen, Enforces: path.Enforce}
		}
	}
}

// serves reports whether an API server of the cluster runs on this machine: to such a one a peer may come that has lost
// its key.
func (a *agent) serves() bool {
	own := a.world.Self().Addresses
	return slices.ContainsFunc(a.memory.apiServers, func(server netip.AddrPort) bool { return slices.Contains(own, server.Addr()) })
}

// choose returns the channel by which a node with these keys, newest first, is to be sent to, and its state. Where
// none may be sent by, it is the one with the newest keys.
func (a *agent) choose(keys []cluster.Key, now time.Duration) (channel, probe.State) {
	for _, key := range keys {
		for _, own := range slices.Backward(a.published()) {
			c := channel{plan.SlotOf(own.epoch, key.Epoch), key.Public}
			if state := a.stateOf(c, now); state.Send {
				return c, state
			}
		}
	}
	newest := channel{plan.SlotOf(a.newest().epoch, keys[0].Epoch), keys[0].Public}
	return newest, a.stateOf(newest, now)
}

// stateOf returns for a channel that is not asked what the kernel does for it, most often nothing.
func (a *agent) stateOf(c channel, now time.Duration) probe.State {
	if peer, known := a.probing.peers[c]; known {
		return peer.State(now)
	}
	adopted := a.probing.adopted[c]
	return probe.State{Send: adopted.Send, Enforce: adopted.Enforce, Size: int(adopted.MTU)}
}

func (a *agent) pathOf(c channel, state probe.State) plan.Path {
	path := plan.Path{Send: state.Send, Slot: c.slot}
	if a.Config.MTU == 0 {
		path.MTU = uint16(state.Size)
		if peer, known := a.probing.peers[c]; known && state.Size == 0 {
			path.MTU = uint16(a.pathBounds(peer.endpoint.Addr()).Largest)
		}
	}
	return path
}

// confirmApplied tells the peers' states what the datapath does by now.
func (a *agent) confirmApplied(now time.Duration) {
	p := a.probing
	for c, kernel := range p.applied {
		p.schedule.Do(c, func(peer *probe.Peer) { peer.Applied(now, kernel) })
	}
	clear(p.applied)
}

// showNarrow says which paths do not carry what IPv6 needs.
func (a *agent) showNarrow() {
	var found []api.Problem
	for _, peer := range a.probing.peers {
		if peer.narrow {
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
