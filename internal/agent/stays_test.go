package agent

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"warren/internal/cluster"
	"warren/internal/config"
	"warren/internal/datapath"
	"warren/internal/discovery"
	"warren/internal/netdev"
	"warren/internal/plan"
	"warren/internal/probe"
)

// TestEncryptionStays drives the loop of an agent without drivers through whatever may happen to its peers, its disk and
// itself, in a time of its own, and looks at the maps and devices that it writes after each turn.
//
// docs/modes.md gives the reasons for which a node that was encrypted to may be sent clear packets: its record is gone, it
// leaves, or this node observes. Nothing else in here may do so, whoever is silent meanwhile; and in strict mode, what is
// dropped in clear stays dropped. A peer is told of one channel at a time that everything comes by it. When nothing is wrong any more,
// everything is encrypted within a minute, by the keys that count last.
func TestEncryptionStays(t *testing.T) {
	disk := fastFolder(t)
	rapid.Check(t, func(r *rapid.T) {
		inOwnTime(t, func() {
			s := newScene(r, disk)
			r.Repeat(s.events())
			s.calm(r)
		})
	})
}

// fastFolder is in memory where that is possible: the agent waits for its disk at each write.
func fastFolder(t *testing.T) string {
	folder, err := os.MkdirTemp("/dev/shm", "warren-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

// inOwnTime calls f in a time that passes only when f sleeps, also for the clock of probes.
func inOwnTime(t *testing.T, f func()) {
	real := monotonic
	defer func() { monotonic = real }()
	var panicked any // how rapid ends a round
	synctest.Test(t, func(*testing.T) {
		defer func() { panicked = recover() }()
		began := time.Now()
		monotonic = func() time.Duration { return time.Hour + time.Since(began) }
		f()
	})
	if fmt.Sprintf("%T", panicked) == "rapid.invalidData" {
		panic(panicked) // rapid tells failures apart by their line, and this is none
	}
	if panicked != nil {
		panic(panicked)
	}
}

// scene is the agent of n1 with other machines around it.
type scene struct {
	*rapid.T
	agent  *agent
	disk   string
	kernel kernel // outlives an agent
	others []*other
	self   []netip.Addr
	mode   cluster.Mode
	since  time.Time // of the mode
	made   byte      // keys so far
	// outdated: the agent found a kernel that knows keys which its disk does not have, and discovery is not synced.
	outdated bool
	issued   time.Time
	air      []datapath.Arrival         // probes under way to this node
	said     map[cluster.NodeID]channel // by which each was told, in this turn, that everything comes
}

// kernel is what the node's maps and devices have.
type kernel struct {
	entries map[netip.Prefix]plan.Entry
	devices [plan.Slots]plan.State
	there   [plan.Slots]bool
}

// other is another machine.
type other struct {
	id        cluster.NodeID
	addresses []netip.Addr
	prefixes  []netip.Prefix
	keys      []cluster.Key // of its devices, oldest first
	up        bool          // its agent runs, and what it sends arrives
	encrypts  bool          // it says that it sends to n1 through the tunnel
	record    cluster.Node  // that discovery has
	listed    bool          // discovery has it
	heard     bool          // this agent has been told so
	gone      time.Time     // when this agent was told that it has not
	// What n1 does about it, as the datapath has it.
	sealed   []netip.Prefix // all that is behind it, and encrypted to; nil: not all is
	enforced bool           // in strict mode
}

func newScene(r *rapid.T, disk string) *scene {
	s := &scene{T: r, disk: disk, mode: cluster.ModePermissive, self: addresses("10.0.0.1", "fd00::1"), issued: time.Now()}
	if err := os.RemoveAll(filepath.Join(disk, "state")); err != nil {
		r.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(disk, "state"), 0o700); err != nil {
		r.Fatal(err)
	}
	s.kernel.entries = map[netip.Prefix]plan.Entry{}
	for i := range rapid.IntRange(1, 3).Draw(r, "peers") {
		o := &other{id: cluster.NodeID{Cluster: cluster.DefaultCluster, Name: fmt.Sprintf("n%d", i+2)}, up: true, encrypts: true, listed: true}
		o.addresses = addresses(fmt.Sprintf("10.0.%d.1", i+2), fmt.Sprintf("fd00:%d::1", i+2))
		o.prefixes = []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.4%d.0.0/24", i+2))}
		o.keys = []cluster.Key{s.newKey(1)}
		s.others = append(s.others, o)
		s.publish(o)
	}
	s.start()
	s.sync()
	s.pass(5 * time.Second)
	return s
}

func addresses(list ...string) (addrs []netip.Addr) {
	for _, text := range list {
		addrs = append(addrs, netip.MustParseAddr(text))
	}
	return addrs
}

func (s *scene) newKey(epoch uint32) cluster.Key {
	s.made++
	return cluster.Key{Public: cluster.PublicKey{100, s.made}, Epoch: epoch, Port: plan.SlotOf(epoch, 1).Port(cluster.DefaultPort)}
}

// start starts an agent. It finds the kernel and the disk as the last one left them, and discovery says nothing yet.
func (s *scene) start() {
	c := config.Default()
	c.StateDir, c.MTU, c.Mode, c.Addresses = filepath.Join(s.disk, "state"), 1440, s.mode, s.self
	a := &agent{
		Options: Options{Config: c, Log: slog.New(slog.DiscardHandler)}, id: cluster.NodeID{Cluster: cluster.DefaultCluster, Name: "n1"},
		world: plan.NewWorld(cluster.SourceDirectory, true), departures: plan.NewDepartures(holdRule(c)), probing: newProbing(),
		data: &datapath.Datapath{}, have: plan.NewState(), pending: plan.Scope{All: true}, failures: map[string]uint64{},
	}
	var err error
	if a.keys, err = a.ownKeys().load(); err != nil {
		s.Fatal(err)
	}
	if len(a.keys) > 1 {
		a.rotation = plan.NewRotation(a.newest().made)
	}
	a.remember()
	s.agent, s.air = a, nil
	for _, o := range s.others {
		o.heard, o.gone = false, time.Time{}
	}
	s.turn(true)
}

// turn is one of the loop's, after news. A full one looks at everything.
func (s *scene) turn(full bool) {
	a := s.agent
	s.said = map[cluster.NodeID]channel{}
	for _, arrival := range s.air {
		a.hear(arrival)
	}
	s.air = nil
	time.Sleep(time.Millisecond) // nothing happens at the very moment of something else
	a.doDue()
	if full = full || a.view.mode != a.datapathMode(); full || !a.idle() {
		if err := s.round(full); err != nil {
			s.Fatal(err)
		}
	}
	s.check()
}

// round is a round of the agent with this kernel's drivers in the place of the real ones.
func (s *scene) round(full bool) error {
	a := s.agent
	steps, last := []step{{name: "state", run: s.converge}, {name: "snapshot", run: a.saveMemory}}, []step(nil)
	if full || !a.view.complete {
		a.pending.All = true
		steps = append([]step{{name: "devices", run: s.ensureDevices}, {name: "read", run: s.read}}, steps...)
		last = []step{{name: "old devices", run: s.dropDevices}}
	}
	return a.carry(context.Background(), steps, last)
}

func (s *scene) ensureDevices(context.Context) error {
	a := s.agent
	a.view.underlays = []netdev.Link{{Index: 2, MTU: 1500}}
	a.view.mode = a.datapathMode()
	self := a.selfNode(s.self)
	a.apply(plan.Change{Self: &self})
	for i, wanted := range a.wantedSlots() {
		slot := plan.Slot(i)
		key, ours := a.ownKeyIn(slot)
		wanted = wanted || ours && s.kernel.there[slot] && !a.synced
		if !wanted || a.tunnels[slot] != nil && a.tunnels[slot].key == key {
			continue
		}
		if !s.kernel.there[slot] {
			s.kernel.there[slot], s.kernel.devices[slot] = true, plan.NewState()
		}
		a.tunnels[slot] = &tunnel{slot: slot, key: key, address: probe.Address(key.public), have: plan.NewState(), injector: wire{s, slot}}
	}
	return nil
}

func (s *scene) read(context.Context) error {
	a := s.agent
	a.have.Entries = maps.Clone(s.kernel.entries)
	for _, t := range a.tunnelsInUse() {
		t.have = s.kernel.devices[t.slot].Clone()
	}
	a.adoptPaths()
	return nil
}

func (s *scene) converge(context.Context) error {
	a := s.agent
	entries, tunnels, drained := a.operations()
	a.carriedOut(entries, tunnels, drained)
	s.kernel.entries = maps.Clone(a.have.Entries)
	for t := range tunnels {
		s.kernel.devices[t.slot] = t.have.Clone()
	}
	return nil
}

func (s *scene) dropDevices(context.Context) error {
	if !s.agent.synced {
		return nil
	}
	for slot, wanted := range s.agent.wantedSlots() {
		if !wanted {
			s.agent.tunnels[slot], s.kernel.there[slot] = nil, false
		}
	}
	return nil
}

// wire is the injector of a device.
type wire struct {
	scene *scene
	slot  plan.Slot
}

func (w wire) Close() error { return nil }

// Send has the machine that the packet reaches answer it.
func (w wire) Send(packet []byte) error {
	s := w.scene
	source, destination, said, err := probe.Parse(packet, len(packet))
	if err != nil {
		return err
	}
	device := s.kernel.devices[w.slot]
	for key, peer := range device.Peers {
		if probe.Address(key) != destination {
			continue
		}
		o := s.find(peer.Node)
		if said.Encrypting {
			s.hearSaid(o, channel{w.slot, key})
		}
		if said.Kind == probe.Request && o.receives(key, peer.Endpoint.Addr()) {
			s.answer(o, w.slot, key, source, said)
		}
	}
	return nil
}

// hearSaid notes by which channel a machine was told that everything comes. In one turn that is one channel.
func (s *scene) hearSaid(o *other, by channel) {
	if before, told := s.said[o.id]; told && before != by {
		s.Fatalf("%s is told that everything comes by slot %d, and by slot %d", o.id.Name, before.slot, by.slot)
	}
	s.said[o.id] = by
}

// receives reports whether a packet that is encrypted with that key gets through to a machine at that address.
func (o *other) receives(key cluster.PublicKey, at netip.Addr) bool {
	has := func(k cluster.Key) bool { return k.Public == key }
	return o.up && slices.Contains(o.addresses, at) && slices.ContainsFunc(o.keys, has)
}

// answer sends a reply by the channel of the request. A machine says that it encrypts by the one with the newest keys.
func (s *scene) answer(o *other, slot plan.Slot, key cluster.PublicKey, to netip.Addr, request probe.Message) {
	newest := slot.Own(s.agent.newest().epoch) && o.keys[len(o.keys)-1].Public == key
	reply := probe.Message{Kind: probe.Reply, Nonce: request.Nonce, Size: request.Size, Stance: probe.Stance{Confirmed: true, Encrypting: o.encrypts && newest, Mode: cluster.ModePermissive}}
	packet, err := probe.Packet(probe.Address(key), to, cluster.DefaultPort, reply, probe.MinSize)
	if err != nil {
		s.Fatal(err)
	}
	s.air = append(s.air, datapath.Arrival{Time: monotonic(), Length: len(packet), Data: packet})
}

// sendsBy reports whether all that is behind a machine, as far as the maps have it, is sent by that device.
func (s *scene) sendsBy(o *other, slot plan.Slot) bool {
	prefixes, _, _ := s.behind(o)
	return !slices.ContainsFunc(prefixes, func(prefix netip.Prefix) bool {
		entry, known := s.kernel.entries[prefix]
		return known && (!entry.Send || entry.Slot != slot)
	})
}

func (s *scene) find(id cluster.NodeID) *other {
	return s.others[slices.IndexFunc(s.others, func(o *other) bool { return o.id == id })]
}

// pass lets time pass.
func (s *scene) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		pause := min(s.agent.untilDue(), time.Until(end))
		if len(s.air) > 0 {
			pause = 0
		}
		time.Sleep(max(pause, 0))
		s.turn(false)
	}
}

// tell gives the agent an event of discovery.
func (s *scene) tell(event discovery.Event) {
	s.agent.take(event, nil)
	s.turn(false)
}

// publish makes what a machine is its record; the agent hears of it when it listens.
func (s *scene) publish(o *other) {
	s.issued = s.issued.Add(time.Second)
	o.record = cluster.Node{
		ID: o.id, Addresses: slices.Clone(o.addresses), Prefixes: slices.Clone(o.prefixes), Keys: slices.Clone(o.keys), Issued: s.issued,
	}
	o.listed = true
	if s.agent != nil && s.agent.synced {
		s.deliver(o)
	}
}

// forge publishes another record than that of the machine.
func (s *scene) forge(o *other, change func(*cluster.Node)) {
	change(&o.record)
	if s.agent.synced {
		s.deliver(o)
	}
}

func (s *scene) deliver(o *other) {
	switch {
	case o.listed:
		o.heard, o.gone = true, time.Time{}
		s.tell(discovery.Event{Kind: discovery.Upsert, ID: o.id, Node: o.record})
	case o.heard:
		o.heard, o.gone = false, time.Now()
		s.tell(discovery.Event{Kind: discovery.Delete, ID: o.id})
	}
}

// sync has discovery say all that it knows.
func (s *scene) sync() {
	for _, o := range s.others {
		if s.deliver(o); !o.listed && o.gone.IsZero() {
			o.gone = time.Now() // it was known from before, and is not in what discovery has
		}
	}
	s.tell(discovery.Event{Kind: discovery.Synced})
	s.outdated = false
}

// events are what may happen.
func (s *scene) events() map[string]func(*rapid.T) {
	machine := func(event func(*rapid.T, *other)) func(*rapid.T) {
		return func(r *rapid.T) {
			s.T = r
			event(r, s.others[rapid.IntRange(0, len(s.others)-1).Draw(r, "machine")])
		}
	}
	node := func(event func(*rapid.T)) func(*rapid.T) {
		return func(r *rapid.T) { s.T = r; event(r) }
	}
	return map[string]func(*rapid.T){
		"time passes":         node(s.timePasses),
		"machine moves":       machine(s.moves),
		"prefixes change":     machine(s.changesPrefixes),
		"new key announced":   machine(s.announces),
		"old key withdrawn":   machine(s.withdraws),
		"machine rebuilt":     machine(s.isRebuilt),
		"record forged":       machine(s.isForged),
		"record put right":    machine(func(_ *rapid.T, o *other) { s.publish(o) }),
		"record vanishes":     machine(s.vanishes),
		"silence or answers":  machine(func(_ *rapid.T, o *other) { o.up = !o.up }),
		"it encrypts or not":  machine(func(_ *rapid.T, o *other) { o.encrypts = !o.encrypts }),
		"own key replaced":    node(s.ownRotation),
		"own address changes": node(s.ownAddress),
		"disk fails or not":   node(s.diskFails),
		"mode changes":        node(s.modeChanges),
		"agent restarts":      node(s.restarts),
		"discovery delivers":  machine(s.delivers),
		"discovery synced":    node(s.synced),
	}
}

func (s *scene) timePasses(r *rapid.T) {
	s.pass(rapid.SampledFrom([]time.Duration{50 * time.Millisecond, 300 * time.Millisecond, time.Second, 3 * time.Second, 12 * time.Second, 40 * time.Second}).Draw(r, "duration"))
}

func (s *scene) moves(r *rapid.T, o *other) {
	i := s.indexOf(o)
	o.addresses = addresses(rapid.SampledFrom([][]string{
		{fmt.Sprintf("10.0.%d.1", i), fmt.Sprintf("fd00:%d::1", i)}, {fmt.Sprintf("fd00:%d::1", i), fmt.Sprintf("10.0.%d.1", i)},
		{fmt.Sprintf("10.0.%d.2", i)}, {fmt.Sprintf("10.0.%d.3", i), fmt.Sprintf("10.0.%d.1", i)},
	}).Draw(r, "addresses")...)
	for k := range o.keys {
		o.keys[k].Port = plan.SlotOf(o.keys[k].Epoch, 1).Port(rapid.SampledFrom([]uint16{cluster.DefaultPort, 40000}).Draw(r, "port"))
	}
	s.publish(o)
}

func (s *scene) indexOf(o *other) int { return slices.Index(s.others, o) + 2 }

func (s *scene) changesPrefixes(r *rapid.T, o *other) {
	o.prefixes = nil
	for k := range 3 {
		if rapid.Bool().Draw(r, "prefix") {
			o.prefixes = append(o.prefixes, netip.MustParsePrefix(fmt.Sprintf("10.4%d.%d.0/24", s.indexOf(o), k)))
		}
	}
	s.publish(o)
}

func (s *scene) announces(r *rapid.T, o *other) {
	if len(o.keys) > 1 {
		r.Skip("has two keys")
	}
	o.keys = append(o.keys, s.newKey(o.keys[0].Epoch+1))
	s.publish(o)
}

// withdraws: a machine lets go of its old key only when it has nothing more to do with n1 by it (docs/keys.md).
func (s *scene) withdraws(r *rapid.T, o *other) {
	if len(o.keys) < 2 || !s.usesOnly(o, o.keys[1].Public) {
		r.Skip("needs the old key")
	}
	o.keys = o.keys[1:]
	s.publish(o)
}

func (s *scene) usesOnly(o *other, key cluster.PublicKey) bool {
	path := s.agent.world.Routes().Paths[key]
	return s.agent.synced && path.Send && s.sendsBy(o, path.Slot)
}

func (s *scene) isRebuilt(r *rapid.T, o *other) {
	if s.outdated {
		r.Skip("the disk is behind")
	}
	o.keys = []cluster.Key{s.newKey(1)}
	s.publish(o)
}

func (s *scene) isForged(r *rapid.T, o *other) {
	if s.outdated {
		r.Skip("the disk is behind")
	}
	s.forge(o, rapid.SampledFrom([]func(*cluster.Node){
		func(n *cluster.Node) { n.Keys = []cluster.Key{s.newKey(1)} },
		func(n *cluster.Node) { n.Keys = slices.Clone(s.others[0].keys) },
		func(n *cluster.Node) { n.Keys = slices.Clone(s.agent.world.Self().Keys) },
		func(n *cluster.Node) { n.Keys = nil },
		func(n *cluster.Node) { n.Addresses = nil },
	}).Draw(r, "as"))
}

func (s *scene) vanishes(r *rapid.T, o *other) {
	if s.outdated {
		r.Skip("the disk is behind")
	}
	o.listed = false
	if s.agent.synced {
		s.deliver(o)
	}
}

func (s *scene) ownRotation(r *rapid.T) {
	if err := s.agent.beginRotation(); err != nil {
		r.Skip(err)
	}
	s.turn(false)
}

func (s *scene) ownAddress(r *rapid.T) {
	s.self = addresses(rapid.SampledFrom([][]string{{"10.0.0.1", "fd00::1"}, {"10.0.0.1"}, {"10.0.0.9", "fd00::1"}}).Draw(r, "addresses")...)
	s.turn(true)
}

func (s *scene) diskFails(*rapid.T) {
	good := filepath.Join(s.disk, "state")
	if s.agent.Config.StateDir == good {
		s.agent.Config.StateDir = os.DevNull // nothing can be written into it
	} else {
		s.agent.Config.StateDir = good
	}
}

func (s *scene) modeChanges(r *rapid.T) {
	s.setMode(rapid.SampledFrom([]cluster.Mode{cluster.ModeObserve, cluster.ModePermissive, cluster.ModeStrict}).Draw(r, "mode"))
}

func (s *scene) setMode(mode cluster.Mode) {
	if mode != s.mode {
		s.mode, s.agent.Config.Mode, s.since = mode, mode, time.Now()
	}
	s.turn(true)
}

// restarts: with a disk that is behind, no record is refused, gone or still to be told. The keys of such a machine are known to
// the kernel alone, and count no longer when discovery has said something else (docs/modes.md).
func (s *scene) restarts(r *rapid.T) {
	behind := s.agent.memory.stale
	if behind && (len(s.agent.world.Admission().Refused) > 0 || slices.ContainsFunc(s.others, s.hasNews)) {
		r.Skip("two faults")
	}
	s.outdated = s.outdated || behind
	s.start()
}

// hasNews reports whether discovery has something else of a machine than what this agent believes.
func (s *scene) hasNews(o *other) bool {
	_, keys, peer := s.behind(o)
	return !peer || !o.listed || o.record.Validate() != nil || !slices.Equal(keys, plan.LiveKeys(&o.record))
}

func (s *scene) delivers(r *rapid.T, o *other) {
	if s.agent.synced || !o.listed {
		r.Skip("has nothing to say")
	}
	s.deliver(o)
}

func (s *scene) synced(r *rapid.T) {
	if s.agent.synced {
		r.Skip("is")
	}
	s.sync()
}

// check compares what the datapath does by now with what it did, and with what it must do.
func (s *scene) check() {
	for _, o := range s.others {
		s.checkSealed(o)
		s.checkEnforced(o)
	}
}

// behind is what is behind a machine as far as the agent believes it. Without a peer it is what the kernel still has of it.
func (s *scene) behind(o *other) (prefixes []netip.Prefix, keys []cluster.Key, peer bool) {
	for _, record := range s.agent.world.Admission().Peers {
		if record.ID != o.id {
			continue
		}
		for _, addr := range record.Addresses {
			prefixes = append(prefixes, cluster.HostPrefix(addr))
		}
		return append(prefixes, record.Prefixes...), plan.LiveKeys(&record.Node), true
	}
	return nil, nil, false
}

func (s *scene) checkSealed(o *other) {
	prefixes, keys, peer := s.behind(o)
	switch {
	case s.mode == cluster.ModeObserve || time.Since(s.since) < time.Second: // what another mode left may go
		o.sealed = nil
		return
	case !s.agent.synced:
		// The kernel may know keys and prefixes better than a disk that failed.
		prefixes = slices.DeleteFunc(slices.Clone(o.sealed), func(p netip.Prefix) bool { return peer && !slices.Contains(prefixes, p) })
		peer = false
	case !peer:
		if settled := !o.gone.IsZero() && time.Since(o.gone) >= settle; o.sealed != nil && !settled {
			s.Fatalf("%s is a peer no more", o.id.Name)
		}
		o.sealed = nil
		return
	}
	for _, prefix := range prefixes {
		if why := s.open(prefix, keys, peer); why != "" {
			if o.sealed != nil {
				s.Fatalf("%s: packets to %s: %s", o.id.Name, prefix, why)
			}
			return
		}
	}
	o.sealed = prefixes
}

// open says why what goes to a prefix is not encrypted with a live key; "" when it is.
func (s *scene) open(prefix netip.Prefix, keys []cluster.Key, peer bool) string {
	entry, known := s.kernel.entries[prefix]
	if !known || !entry.Send {
		return fmt.Sprintf("leave in clear (known %t)", known)
	}
	if !s.kernel.there[entry.Slot] {
		return fmt.Sprintf("go to slot %d, which has no device", entry.Slot)
	}
	owner, owned := s.kernel.devices[entry.Slot].AllowedIPs[prefix]
	if live := slices.ContainsFunc(keys, func(k cluster.Key) bool { return k.Public == owner }); !owned || peer && !live {
		return fmt.Sprintf("are lost in slot %d (owned %t)", entry.Slot, owned)
	}
	return ""
}

func (s *scene) checkEnforced(o *other) {
	prefixes, _, peer := s.behind(o)
	if s.mode != cluster.ModeStrict || o.sealed == nil {
		o.enforced = false
		return
	}
	if !peer || s.outdated {
		return
	}
	for _, prefix := range prefixes {
		if !s.kernel.entries[prefix].Enforce {
			if o.enforced {
				s.Fatalf("%s: clear packets from %s are accepted again", o.id.Name, prefix)
			}
			return
		}
	}
	o.enforced = true
}

// calm puts everything right, and looks at what becomes of it.
func (s *scene) calm(r *rapid.T) {
	s.T = r
	s.agent.Config.StateDir = filepath.Join(s.disk, "state")
	if s.mode == cluster.ModeObserve {
		s.setMode(cluster.ModePermissive)
	}
	for _, o := range s.others {
		o.up, o.encrypts = true, true
		s.publish(o)
	}
	if !s.agent.synced {
		s.sync()
	}
	s.pass(time.Minute)
	for _, o := range s.others {
		key, _ := s.agent.world.KeyInUse(o.id)
		if newest := o.keys[len(o.keys)-1]; o.sealed == nil || key.Public != newest.Public {
			s.Fatalf("%s: encrypted to %t, with its newest key %t", o.id.Name, o.sealed != nil, key.Public == newest.Public)
		}
		if s.mode == cluster.ModeStrict && !o.enforced {
			s.Fatalf("%s: clear packets are accepted", o.id.Name)
		}
	}
	if s.agent.rotation != nil {
		s.Fatalf("the own key is being replaced still: %s", s.agent.rotation.Stage())
	}
}
