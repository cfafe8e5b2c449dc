package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"warren/internal/api"
	"warren/internal/cluster"
	"warren/internal/config"
	"warren/internal/datapath"
	"warren/internal/datapath/model"
	"warren/internal/netdev"
	"warren/internal/plan"
)

// step is one part of a round. Its name is a metric label and the place of its problem.
type step struct {
	name   string
	remedy string
	run    func(context.Context) error
}

// round brings the node to what is wanted. A full round looks at links, device and programs, and reads
// what is actual first; the other kind looks at what changed. A step that fails ends the round,
// since the next ones build on it. What others are told of this node comes last: peers are followed also while an
// engine of discovery takes no record.
func (a *agent) round(ctx context.Context, full bool) error {
	a.rounds++
	steps, last := []step{
		{"state", "warren ipcache list and wg show have what is there", a.converge},
		{"snapshot", "", a.saveMemory},
	}, []step(nil)
	if full || !a.view.complete {
		a.pending.All = true
		steps = []step{
			{"underlay", "set addresses: and underlay: in the configuration", a.observeLinks},
			{"watchdog", "", a.treatStalls},
			{"device", "", a.ensureDevices},
			{"datapath", "", a.ensureDatapath},
			{"read", "", a.readState},
			steps[0],
			{"takeover", "", a.takeOver},
			steps[1],
		}
		last = []step{
			{"record", "let the agent write its record: a folder that it may write to, or rights and a connection", a.publish},
			{"old devices", "", a.dropTunnels},
			{"devices", "", a.brokenTunnels},
		}
	}
	return a.carry(ctx, steps, last)
}

// carry takes the steps of a round. Between them and the last ones the peers are told what counts by now.
func (a *agent) carry(ctx context.Context, steps, last []step) error {
	a.view.complete = false
	if err := a.walk(ctx, steps); err != nil {
		return err
	}
	a.view.complete = true
	now := monotonic()
	a.confirmApplied(now)
	a.followPeers(now)
	if err := a.walk(ctx, last); err != nil {
		a.view.complete = false
		return err
	}
	a.report()
	return nil
}

// walk takes steps until one fails.
func (a *agent) walk(ctx context.Context, steps []step) error {
	for _, s := range steps {
		err := s.run(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		a.problems.set(stepFinder(s.name), stepProblem(s, err), time.Now(), a.Log)
		if err != nil {
			a.failures[s.name]++
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func stepProblem(s step, err error) []api.Problem {
	if err == nil {
		return nil
	}
	return []api.Problem{{Where: s.name, Message: err.Error(), Remedy: s.remedy}}
}

// observeLinks finds this node's addresses and underlay devices.
func (a *agent) observeLinks(context.Context) error {
	links, err := a.links.Links()
	if err != nil {
		return err
	}
	addrs := a.Config.Addresses
	if len(addrs) == 0 {
		addrs = a.engineSays.ownAddresses(func(addr netip.Addr) bool {
			return slices.ContainsFunc(links, func(l netdev.Link) bool { return l.HasAddr(addr) })
		})
	}
	if len(addrs) == 0 {
		if addrs, err = netdev.DetectAddresses(links, a.links.RouteTo); err != nil {
			return err
		}
	}
	underlays, err := netdev.Underlays(links, addrs, a.Config.Underlay)
	if err != nil {
		return err
	}
	if !a.synced {
		if err := a.adoptTunnels(links); err != nil {
			return err
		}
	}
	a.view.underlays = underlays
	a.view.primary = primary(underlays, addrs[0])
	self := a.selfNode(addrs)
	a.apply(plan.Change{Self: &self}, plan.Change{Underlay: a.underlayRoutes()})
	return nil
}

// primary returns the index of the device with the node's first address, or of the first device.
func primary(underlays []netdev.Link, first netip.Addr) uint32 {
	for _, link := range underlays {
		if link.HasAddr(first) {
			return link.Index
		}
	}
	return underlays[0].Index
}

func (a *agent) selfNode(addrs []netip.Addr) cluster.Node {
	self := a.world.Self()
	next := cluster.Node{
		ID: a.id, Addresses: addrs, Prefixes: a.engineSays.ownPrefixes(a.Config.Prefixes), Capabilities: a.capabilities(), Version: a.Version, Issued: self.Issued,
	}
	for _, key := range a.published() {
		next.Keys = append(next.Keys, cluster.Key{Public: key.public, Epoch: key.epoch, Port: plan.SlotOf(key.epoch, 1).Port(a.Config.Port)})
	}
	if !plan.SameContent(&self, &next) {
		next.Issued = time.Now().UTC().Truncate(time.Second)
	}
	return next
}

// underlayRoutes asks the kernel by which underlay device each tunnel endpoint is reached, where
// there are several devices to choose from.
func (a *agent) underlayRoutes() map[netip.Addr]uint32 {
	routes := map[netip.Addr]uint32{}
	if len(a.view.underlays) < 2 {
		return routes
	}
	for _, peer := range a.world.Routes().Peers {
		route, err := a.links.RouteTo(peer.Endpoint.Addr())
		isUnderlay := func(l netdev.Link) bool { return l.Index == route.Ifindex }
		if err == nil && route.Ifindex != a.view.primary && slices.ContainsFunc(a.view.underlays, isUnderlay) {
			routes[peer.Endpoint.Addr()] = route.Ifindex
		}
	}
	return routes
}

// wantDevice is the WireGuard device of a slot as configured. Its MTU is that of the widest path.
func (a *agent) wantDevice(slot plan.Slot) plan.Device {
	c := a.Config
	mtu := c.MTU
	if mtu == 0 {
		widest := slices.MaxFunc(a.view.underlays, func(a, b netdev.Link) int { return a.MTU - b.MTU })
		mtu = plan.InnerMTU(widest.MTU, a.onlyIPv6())
	}
	return plan.Device{Name: slot.Device(c.Device), Port: slot.Port(c.Port), Mark: c.Mark.Value, MTU: mtu}
}

func (a *agent) onlyIPv6() bool {
	return !slices.ContainsFunc(a.world.Self().Addresses, netip.Addr.Is4)
}

// linkTo returns the underlay device by which a tunnel endpoint is reached.
func (a *agent) linkTo(endpoint netip.Addr) netdev.Link {
	index, elsewhere := a.world.Routes().Underlay[endpoint]
	if !elsewhere {
		index = a.view.primary
	}
	for _, link := range a.view.underlays {
		if link.Index == index {
			return link
		}
	}
	return a.view.underlays[0]
}

// ensureDatapath loads the programs as configured and attaches them to the underlay and the device. Those of
// an older version go on until takeOver.
func (a *agent) ensureDatapath(ctx context.Context) error {
	if a.data.Migrating() {
		return nil
	}
	return a.attachDatapath(ctx)
}

// takeOver replaces the programs of an older version once the maps of this one have what they need.
func (a *agent) takeOver(ctx context.Context) error {
	if !a.data.Migrating() || !a.synced {
		return nil
	}
	a.Log.Info("the programs take over from an older version")
	return a.attachDatapath(ctx)
}

func (a *agent) attachDatapath(ctx context.Context) error {
	constants, err := a.constants()
	if err != nil {
		return err
	}
	mode := a.datapathMode()
	if err := errors.Join(a.data.SetServers(a.bootstrapServers()), a.data.SetExemptions(exemptions(a.Config))); err != nil {
		return err
	}
	if err := a.data.Configure(constants); err != nil {
		return err
	}
	a.view.mode = mode
	var underlays []datapath.Underlay
	for _, link := range a.view.underlays {
		underlays = append(underlays, datapath.Underlay{Index: link.Index, Name: link.Name, MAC: link.MAC, L3: link.L3})
	}
	if err := a.data.Sync(ctx, underlays, a.tunnelIndexes()); err != nil {
		return err
	}
	a.view.attachments, err = a.data.Attachments()
	return err
}

// bootstrapServers are the ports that a node of a strict cluster needs before it is confirmed.
func (a *agent) bootstrapServers() []netip.AddrPort {
	all := slices.Concat(a.memory.apiServers, a.engineServers)
	slices.SortFunc(all, netip.AddrPort.Compare)
	return slices.Compact(all)
}

// datapathMode is the mode of the programs. On the way to observe mode they go on encrypting until no
// peer is sent to any more: one in strict mode would drop what comes in clear.
func (a *agent) datapathMode() cluster.Mode {
	if a.Config.Mode == cluster.ModeObserve && a.sendsToAny() {
		return cluster.ModePermissive
	}
	return a.Config.Mode
}

func (a *agent) sendsToAny() bool {
	for _, path := range a.world.Routes().Paths {
		if path.Send {
			return true
		}
	}
	return false
}

// constants are what the programs are configured with.
func (a *agent) constants() (model.Config, error) {
	c := a.Config
	constants := model.Config{
		Mark: c.Mark.Value, MarkMask: c.Mark.Mask, Port: c.Port, Tunnels: a.tunnelIndexes(), PrimaryUnderlay: a.view.primary,
		Mode: a.datapathMode(), InnerMTU: uint16(a.wantDevice(0).MTU), Exemptions: len(c.Exempt) > 0,
	}
	err := errors.Join(constants.Ingress.UnmarshalText([]byte(c.Ingress)), constants.Oversize.UnmarshalText([]byte(c.Oversize)))
	return constants, err
}

// exemptions is what the configuration leaves in clear, in the words of the datapath.
func exemptions(c config.Config) []model.Exemption {
	var list []model.Exemption
	for _, e := range c.Exempt {
		list = append(list, model.Exemption(e))
	}
	return list
}

// readState reads what the kernel has. What differs from what this agent had put there is drift.
func (a *agent) readState(context.Context) error {
	entries, err := a.data.Entries()
	if err != nil {
		return err
	}
	for _, t := range a.tunnelsInUse() {
		if err := a.readTunnel(t); err != nil {
			return err
		}
	}
	have := plan.NewState()
	have.Entries = entries
	a.noteDrift(a.have, have)
	a.have = have
	a.adoptPaths()
	return nil
}

func (a *agent) repaired(what string, args ...any) {
	a.repairs++
	a.Log.Warn("drift: "+what, args...)
}

// converge applies what differs between wanted and actual within the pending scope.
func (a *agent) converge(context.Context) error {
	entries, tunnels, drained := a.operations()
	if err := a.carryOut(entries, tunnels); err != nil {
		return err // the next round reads anew and looks at everything
	}
	a.carriedOut(entries, tunnels, drained)
	return nil
}

// operations are what differs within the pending scope. drained says that nothing of it was put off.
func (a *agent) operations() (entries plan.Ops, tunnels map[*tunnel]plan.Ops, drained bool) {
	scope, options := a.pending, plan.Options{Prune: a.synced}
	entries = plan.Diff(a.world.WantEntries(scope), scope.Of(a.have), options)
	tunnels = map[*tunnel]plan.Ops{}
	for _, t := range a.tunnelsInUse() {
		tunnels[t] = plan.Diff(a.world.WantTunnel(scope, t.slot), scope.Of(t.have), options)
	}
	a.keepUnknown(&entries, tunnels)
	return entries, tunnels, a.drain(entries, tunnels, time.Now())
}

// keepUnknown leaves out what would end encryption by keys that are not known: the kernel is ahead of a disk that could not
// be written, and until discovery has said everything there is nobody else who knows them.
func (a *agent) keepUnknown(entries *plan.Ops, tunnels map[*tunnel]plan.Ops) {
	if a.synced || a.Config.Mode == cluster.ModeObserve {
		return
	}
	kept := map[netip.Prefix]bool{}
	entries.SetEntries = slices.DeleteFunc(entries.SetEntries, func(e plan.PrefixEntry) bool {
		kept[e.Prefix] = !e.Entry.Send && a.sentByUnknown(e.Prefix)
		return kept[e.Prefix]
	})
	for t, ops := range tunnels {
		ops.AllowedIPs = slices.DeleteFunc(ops.AllowedIPs, func(ip plan.AllowedIP) bool { return kept[ip.Prefix] })
		tunnels[t] = ops
	}
}

// sentByUnknown reports whether the kernel encrypts what goes to a prefix with a key that is in no record.
func (a *agent) sentByUnknown(prefix netip.Prefix) bool {
	entry := a.have.Entries[prefix]
	t := a.tunnels[entry.Slot]
	if !entry.Send || t == nil {
		return false
	}
	owner, owned := t.have.AllowedIPs[prefix]
	_, known := a.world.Routes().Peers[owner]
	return owned && !known
}

// carriedOut notes what the kernel has by now.
func (a *agent) carriedOut(entries plan.Ops, tunnels map[*tunnel]plan.Ops, drained bool) {
	if !drained {
		a.draining.Add(a.pending)
	}
	a.pending = plan.Scope{}
	a.have.Apply(entries)
	for t, ops := range tunnels {
		t.have.Apply(ops)
		a.noteOperations(ops, "device", t.link.Name, "peers_set", len(ops.SetPeers), "peers_removed", len(ops.RemovePeers), "allowed_ips", len(ops.AllowedIPs))
	}
	a.noteOperations(entries, "entries_set", len(entries.SetEntries), "entries_deleted", len(entries.DeleteEntries))
}

// drainTime is how long a device goes on encrypting what the datapath gave it before it let go of a prefix: its queue is
// short, but a tunnel process may have to wait for a processor.
const drainTime = time.Second

// drain puts off what the devices lose until drainTime after the datapath let go of something. It reports whether nothing
// was put off.
func (a *agent) drain(entries plan.Ops, tunnels map[*tunnel]plan.Ops, now time.Time) bool {
	if len(entries.DeleteEntries) > 0 {
		a.drained = now.Add(drainTime)
	}
	nothing := true
	for t, ops := range tunnels {
		if now.Before(a.drained) && len(ops.Orphans)+len(ops.RemovePeers) > 0 {
			ops.Orphans, ops.RemovePeers = nil, nil
			tunnels[t], nothing = ops, false
		}
	}
	return nothing
}

// noteOperations counts what was carried out and logs it.
func (a *agent) noteOperations(ops plan.Ops, args ...any) {
	a.written += uint64(ops.Len())
	if ops.Len() > 0 {
		a.Log.Info("state changed", args...)
	}
}

// carryOut runs the operations in their order: every device receives before the datapath sends, and the
// datapath lets go before any device does. What one of them cannot do does not keep the others
// from being done; an entry whose peer is missing drops packets rather than letting them out.
func (a *agent) carryOut(entries plan.Ops, tunnels map[*tunnel]plan.Ops) error {
	var problems []error
	for t, ops := range tunnels {
		problems = append(problems, t.wg.SetPeers(ops.SetPeers), t.wg.GiveIPs(ops.AllowedIPs))
	}
	local := entries.LocalEntries()
	_, localErr := a.data.Apply(entries.SetEntries[:local], nil)
	_, err := a.data.Apply(entries.SetEntries[local:], entries.DeleteEntries)
	problems = append(problems, localErr, err)
	for t, ops := range tunnels {
		problems = append(problems, t.wg.OrphanIPs(ops.Orphans), t.wg.RemovePeers(ops.RemovePeers))
	}
	return errors.Join(problems...)
}

// publish writes this node's own record, if it is not there as it should be, or takes it away. Before the
// engine has said all that it knows of this node, its last record is better than what could be said.
func (a *agent) publish(ctx context.Context) error {
	if a.leave != nil && a.leave.stage != api.LeaveAnnounced {
		return a.engine.Withdraw(ctx)
	}
	if !a.synced {
		return nil
	}
	if err := a.engine.Publish(ctx, a.world.Self()); err != nil {
		return err
	}
	a.view.published = true
	return nil
}
