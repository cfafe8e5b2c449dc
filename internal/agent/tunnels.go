package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"warren/internal/api"
	"warren/internal/cluster"
	"warren/internal/config"
	"warren/internal/netdev"
	"warren/internal/plan"
	"warren/internal/probe"
	"warren/internal/wireguard"
	"warren/internal/wireguard/userspace"
)

// tunnel is the device of one slot.
type tunnel struct {
	slot     plan.Slot
	key      ownKey
	address  netip.Addr // that probes come from
	wg       *wireguard.Device
	device   tunnelDevice
	link     netdev.Link
	injector injector   // for probes; nil without device
	have     plan.State // peers and allowed IPs of the device, as last read or written
	read     bool       // have is what the device had, and not a guess
	watchdog *plan.Watchdog
	traffic  map[cluster.PublicKey]plan.Traffic // since the watchdog looked last; nil: nothing new
	counted  map[cluster.PublicKey]plan.Traffic // at the last reading
	broken   error                              // why the device has not come yet
}

// injector gives whole packets to a device.
type injector interface {
	Send(packet []byte) error
	Close() error
}

func (t *tunnel) close() {
	if t.injector != nil {
		_ = t.injector.Close()
	}
	_ = t.wg.Close()
}

// use takes the device as it is now. Probes go through it from now on.
func (t *tunnel) use(link netdev.Link) error {
	same := t.injector != nil && t.link.Index == link.Index
	t.link = link
	if same {
		return nil
	}
	injector, err := netdev.OpenInjector(link.Index)
	if err != nil {
		return err
	}
	if t.injector != nil {
		_ = t.injector.Close()
	}
	t.injector = injector
	return nil
}

// openTunnel prepares for the device of a slot, which may be there or not.
func (a *agent) openTunnel(slot plan.Slot) (*tunnel, error) {
	key, ok := a.ownKeyIn(slot)
	if !ok {
		return nil, fmt.Errorf("no own key is for slot %d", slot)
	}
	name := slot.Device(a.Config.Device)
	wg, err := wireguard.Open(name, a.Log)
	if err != nil {
		return nil, err
	}
	process := userspace.NewTunnel(userspace.TunnelOptions{
		Executable: a.Executable, Device: name, RunDir: a.Config.RunDir, OnlyLauncher: a.Config.TunnelProcess == config.TunnelByLauncher,
	}, a.Log)
	return &tunnel{
		slot: slot, key: key, address: probe.Address(key.public), wg: wg, have: plan.NewState(), watchdog: plan.NewWatchdog(),
		device: tunnelDevice{engine: a.Config.Engine, links: a.links, process: process},
	}, nil
}

// tunnelsInUse returns the tunnels whose device is there, by slot.
func (a *agent) tunnelsInUse() []*tunnel {
	var list []*tunnel
	for slot := range plan.Slot(plan.Slots) {
		if t := a.tunnels[slot]; t != nil && t.broken == nil {
			list = append(list, t)
		}
	}
	return list
}

// tunnelIndexes are the indexes of the devices that are there, by slot.
func (a *agent) tunnelIndexes() (indexes [plan.Slots]uint32) {
	for _, t := range a.tunnelsInUse() {
		indexes[t.slot] = t.link.Index
	}
	return indexes
}

// firstTunnel returns the one that status shows as the device: the first one of the newest key; nil without any.
func (a *agent) firstTunnel() *tunnel {
	for slot := range plan.Slot(plan.Slots) {
		if t := a.tunnels[slot]; t != nil && slot.Own(a.newest().epoch) {
			return t
		}
	}
	return nil
}

// wantedSlots are the slots that peers call for, those in which the old key still decrypts what is under way,
// and, as long as not all records are read, those that an earlier agent had.
func (a *agent) wantedSlots() [plan.Slots]bool {
	var wanted [plan.Slots]bool
	for _, slot := range a.world.Slots() {
		wanted[slot] = true
	}
	published := a.published()
	for slot, t := range a.tunnels {
		withdrawn := t != nil && slices.Contains(a.keys, t.key) && !slices.Contains(published, t.key)
		wanted[slot] = wanted[slot] || withdrawn || t != nil && !a.synced
	}
	return wanted
}

// lacksTunnel reports whether a device is called for that is not there.
func (a *agent) lacksTunnel() bool {
	for slot, wanted := range a.wantedSlots() {
		if wanted && a.tunnels[slot] == nil {
			return true
		}
	}
	return false
}

// adoptTunnels takes over the devices that an earlier agent left, so that what they encrypt goes on.
func (a *agent) adoptTunnels(links []netdev.Link) error {
	for slot := range plan.Slot(plan.Slots) {
		name := slot.Device(a.Config.Device)
		i := slices.IndexFunc(links, func(l netdev.Link) bool { return l.Name == name })
		if _, ours := a.ownKeyIn(slot); i < 0 || !ours || a.tunnels[slot] != nil {
			continue
		}
		t, err := a.openTunnel(slot)
		if err != nil {
			return err
		}
		t.link, a.tunnels[slot] = links[i], t
	}
	return nil
}

// ensureDevices makes the WireGuard devices, or adopts them, and gives them key, port and mark. A new one that
// cannot be made does not keep the others from working; what happens to one in use ends the round, so that
// nothing else is done on account of it.
func (a *agent) ensureDevices(ctx context.Context) error {
	var problems []error
	for slot, wanted := range a.wantedSlots() {
		if !wanted {
			continue
		}
		t, err := a.tunnelFor(plan.Slot(slot))
		if err != nil {
			return err
		}
		err = a.ensureDevice(ctx, t)
		if err != nil && t.link.Index != 0 || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		t.broken = err
		problems = append(problems, err)
	}
	if len(a.tunnelsInUse()) == 0 {
		return errors.Join(problems...)
	}
	return nil
}

// tunnelFor returns the tunnel of a slot with the own key that the slot is for now. A device whose key was replaced
// twice meanwhile is taken over.
func (a *agent) tunnelFor(slot plan.Slot) (*tunnel, error) {
	t := a.tunnels[slot]
	if key, ours := a.ownKeyIn(slot); t != nil && ours && t.key == key {
		return t, nil
	}
	fresh, err := a.openTunnel(slot)
	if err != nil {
		return nil, err
	}
	if t != nil {
		t.close()
	}
	a.tunnels[slot] = fresh
	return fresh, nil
}

func (a *agent) ensureDevice(ctx context.Context, t *tunnel) error {
	want := a.wantDevice(t.slot)
	link, err := t.device.ensure(ctx, want)
	if err != nil {
		return err
	}
	if before := t.link.Index; before != 0 && before != link.Index {
		a.repaired("the WireGuard device was replaced", "device", want.Name)
	}
	return errors.Join(t.wg.Configure(want, t.key.private), t.use(link))
}

// brokenTunnels fails while a device that is called for has not come.
func (a *agent) brokenTunnels(context.Context) error {
	var problems []error
	for _, t := range a.tunnels {
		if t != nil && t.broken != nil {
			problems = append(problems, t.broken)
		}
	}
	return errors.Join(problems...)
}

// dropTunnels removes the devices that nothing calls for any more. The programs know them no longer before
// they go. Once, it removes what an agent that was killed meanwhile has left.
func (a *agent) dropTunnels(ctx context.Context) error {
	if !a.synced {
		return nil
	}
	var names []string
	for slot, wanted := range a.wantedSlots() {
		t := a.tunnels[slot]
		if wanted || t == nil && a.view.swept {
			continue
		}
		if t != nil {
			t.close()
			a.tunnels[slot], a.view.swept = nil, false
		}
		names = append(names, plan.Slot(slot).Device(a.Config.Device))
	}
	if len(names) == 0 {
		return nil
	}
	if err := a.ensureDatapath(ctx); err != nil {
		return err
	}
	var problems []error
	for _, name := range names {
		device := tunnelDevice{links: a.links}
		problems = append(problems, device.remove(ctx, name))
	}
	a.view.swept = errors.Join(problems...) == nil
	return errors.Join(problems...)
}

// firstDevice is the device that stands for all.
func (a *agent) firstDevice(actual map[plan.Slot]wireguard.Actual) api.Device {
	if t := a.firstTunnel(); t != nil {
		return a.deviceStatus(t, actual[t.slot])
	}
	return api.Device{Name: a.Config.Device, Mark: a.Config.Mark.String()}
}

// deviceMTU is that of all devices, 0 while there is none.
func (a *agent) deviceMTU() int {
	if t := a.firstTunnel(); t != nil {
		return t.link.MTU
	}
	return 0
}

// devices are the devices as they are now.
func (a *agent) devices(actual map[plan.Slot]wireguard.Actual) []api.Device {
	list := []api.Device{}
	for _, t := range a.tunnelsInUse() {
		list = append(list, a.deviceStatus(t, actual[t.slot]))
	}
	return list
}

func (a *agent) deviceStatus(t *tunnel, actual wireguard.Actual) api.Device {
	device := api.Device{
		Name: t.slot.Device(a.Config.Device), Mark: a.Config.Mark.String(), Port: actual.Port,
		PublicKey: t.key.public.String(), Epoch: t.key.epoch,
	}
	if actual.Engine != 0 {
		device.Engine, device.Index, device.MTU = actual.Engine.String(), t.link.Index, t.link.MTU
	}
	return device
}

// readDevices reads all devices that are there.
func (a *agent) readDevices() (map[plan.Slot]wireguard.Actual, error) {
	all := map[plan.Slot]wireguard.Actual{}
	for _, t := range a.tunnelsInUse() {
		actual, err := t.wg.Read()
		if errors.Is(err, wireguard.ErrNoDevice) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all[t.slot] = actual
	}
	return all, nil
}

// readTunnel reads what a device has. What differs from what this agent had put there is drift.
func (a *agent) readTunnel(t *tunnel) error {
	actual, err := t.wg.Read()
	if err != nil {
		return err
	}
	a.noteTraffic(t, actual)
	have := plan.NewState()
	for _, peer := range actual.Peers {
		key := peer.Peer.Key
		peer.Peer.Endpoint = a.world.Endpoint(t.slot, key, peer.Peer.Endpoint)
		have.Peers[key] = peer.Peer
		for _, prefix := range peer.AllowedIPs {
			have.AllowedIPs[prefix] = key
		}
	}
	if t.read {
		a.noteDrift(t.have, have)
	}
	t.have, t.read = have, true
	return nil
}

// noteDrift counts what others have changed.
func (a *agent) noteDrift(before, now plan.State) {
	if drift := plan.Diff(before, now, plan.Options{Prune: true}); drift.Len() > 0 && a.view.published {
		a.repaired("peers or entries had been changed", "operations", drift.Len())
	}
}
