package netdev

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Filter is a traffic control filter on a clsact hook of a device.
type Filter struct {
	Ifindex uint32
	// Egress hook, or ingress hook.
	Egress bool
	// Kind is "bpf", "u32", "flower", "matchall" …
	Kind string
	// Name of a BPF filter, as given to Replace; empty for filters of other kinds.
	Name string
	// ProgID is the id of the BPF program; 0 for filters of other kinds.
	ProgID uint32

	slot
}

// Filters attaches programs to the clsact hooks of devices, which is what kernels before 6.6 have
// instead of TCX; later ones have both.
//
// A filter is known by device, direction and name, and nothing is remembered between calls: another
// process finds, replaces and removes what this one attached. Filters of others stay as they are.
type Filters struct {
	handle *netlink.Handle
}

// Filters returns the hooks of the devices in n's network namespace, for as long as n is open.
func (n *Netdev) Filters() Filters { return Filters{handle: n.handle} }

// Replace attaches the BPF program behind fd (of type sched_cls; the caller keeps fd) in direct-action
// mode: on ingress before the filters of others, on egress behind them. A filter of that name,
// at most 255 bytes, is replaced in one step: every packet meets the old program or the new one.
// A device without clsact qdisc is given one.
//
// Filters run in their order until one returns anything but TC_ACT_UNSPEC. What comes before an
// egress filter may therefore keep packets from it; FiltersNamed("") shows all that is there.
func (f Filters) Replace(ifindex uint32, egress bool, fd int, name string) error {
	err := f.replace(ifindex, egress, fd, name)
	if err != nil {
		return fmt.Errorf("attach %s to %s of device %d by clsact: %w", name, direction(egress), ifindex, err)
	}
	return nil
}

func (f Filters) replace(ifindex uint32, egress bool, fd int, name string) error {
	added, err := f.ensureClsact(ifindex)
	if err != nil {
		return err
	}
	hooks, err := f.hooks(ifindex)
	if err != nil {
		return err
	}
	place, err := choose(hooks.filters(egress), egress, name, added || hooks.ownClsact())
	if err != nil {
		return err
	}
	filter := place.filter(ifindex, egress)
	filter.Fd, filter.Name, filter.DirectAction = fd, name, true
	return f.handle.FilterReplace(filter)
}

// ensureClsact adds the qdisc where there is none and says whether it did.
func (f Filters) ensureClsact(ifindex uint32) (added bool, err error) {
	err = f.handle.QdiscAdd(clsact(ifindex))
	if !errors.Is(err, unix.EEXIST) {
		return err == nil, err
	}
	qdiscs, err := dump(func() ([]netlink.Qdisc, error) { return f.handle.QdiscList(device(ifindex)) })
	if err != nil {
		return false, fmt.Errorf("list its qdiscs: %w", err)
	}
	if !slices.ContainsFunc(qdiscs, isClsact) {
		// The old "ingress" qdisc sits in the same place and has no egress hook. It is not ours
		// to replace: its filters would go with it.
		return false, errors.New("the device has an ingress qdisc, which excludes clsact; " +
			"move its filters to a clsact qdisc (tc qdisc del dev … ingress; tc qdisc add dev … clsact)")
	}
	return false, nil
}

// Remove detaches the filter of that name; one that is gone, with its device or without, is no
// error. The clsact qdisc goes with the last filter on it when Replace had added it.
func (f Filters) Remove(ifindex uint32, egress bool, name string) error {
	if err := f.remove(ifindex, egress, name); err != nil {
		return fmt.Errorf("detach %s from %s of device %d: %w", name, direction(egress), ifindex, err)
	}
	return nil
}

func (f Filters) remove(ifindex uint32, egress bool, name string) error {
	hooks, err := f.hooks(ifindex)
	if err != nil {
		return err
	}
	found, ok := named(hooks.filters(egress), name)
	if !ok {
		return nil
	}
	if err := f.handle.FilterDel(found.filter(ifindex, egress)); err != nil && !gone(err) {
		return err
	}
	if !found.ownsClsact() || len(hooks.ingress)+len(hooks.egress) > 1 {
		return nil
	}
	if err := f.handle.QdiscDel(clsact(ifindex)); err != nil && !gone(err) {
		return fmt.Errorf("remove the empty clsact qdisc: %w", err)
	}
	return nil
}

// Has reports whether a filter of that name is attached, and the id of its program.
func (f Filters) Has(ifindex uint32, egress bool, name string) (progID uint32, found bool, err error) {
	filters, err := f.list(ifindex, egress)
	if err != nil {
		return 0, false, fmt.Errorf("look for %s on device %d: %w", name, ifindex, err)
	}
	filter, found := named(filters, name)
	return filter.ProgID, found, nil
}

// FiltersNamed lists the filters on the clsact hooks of all devices whose name starts with prefix:
// by device, ingress first, in the order in which they run. The empty prefix lists every filter,
// those without a name too.
func (n *Netdev) FiltersNamed(prefix string) ([]Filter, error) {
	qdiscs, err := dump(func() ([]netlink.Qdisc, error) { return n.handle.QdiscList(nil) })
	if err != nil {
		return nil, fmt.Errorf("list qdiscs: %w", err)
	}
	qdiscs = slices.DeleteFunc(qdiscs, func(q netlink.Qdisc) bool { return !isClsact(q) })
	slices.SortFunc(qdiscs, func(a, b netlink.Qdisc) int { return a.Attrs().LinkIndex - b.Attrs().LinkIndex })
	var all []Filter
	for _, qdisc := range qdiscs {
		hooks, err := n.Filters().hooks(uint32(qdisc.Attrs().LinkIndex))
		if err != nil {
			return nil, err
		}
		all = append(append(all, hooks.ingress...), hooks.egress...)
	}
	return slices.DeleteFunc(all, func(f Filter) bool { return !strings.HasPrefix(f.Name, prefix) }), nil
}

// hooks are the filters on both sides of a device's clsact qdisc, in the order in which they run.
type hooks struct{ ingress, egress []Filter }

func (h hooks) filters(egress bool) []Filter {
	if egress {
		return h.egress
	}
	return h.ingress
}

// ownClsact says whether one of our filters remembers that the qdisc was added for it.
func (h hooks) ownClsact() bool {
	return slices.ContainsFunc(slices.Concat(h.ingress, h.egress), func(f Filter) bool { return f.ownsClsact() })
}

func (f Filters) hooks(ifindex uint32) (h hooks, err error) {
	if h.ingress, err = f.list(ifindex, false); err != nil {
		return hooks{}, err
	}
	h.egress, err = f.list(ifindex, true)
	return h, err
}

// list returns nothing for a device that is gone.
func (f Filters) list(ifindex uint32, egress bool) ([]Filter, error) {
	raw, err := dump(func() ([]netlink.Filter, error) { return f.handle.FilterList(device(ifindex), parentOf(egress)) })
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return nil, fmt.Errorf("list %s filters of device %d: %w", direction(egress), ifindex, err)
	}
	filters := make([]Filter, 0, len(raw))
	for _, r := range raw {
		filter := Filter{Ifindex: ifindex, Egress: egress, Kind: r.Type(), slot: slotOf(r.Attrs())}
		if bpf, ok := r.(*netlink.BpfFilter); ok {
			filter.Name, filter.ProgID = bpf.Name, uint32(bpf.Id)
		}
		filters = append(filters, filter)
	}
	return filters, nil
}

func named(filters []Filter, name string) (Filter, bool) {
	at := slices.IndexFunc(filters, func(f Filter) bool { return f.Kind == kindBPF && f.Name == name })
	if at < 0 {
		return Filter{}, false
	}
	return filters[at], true
}

// gone says of a failed deletion that its object is not there any more: the filter (ENOENT), the
// qdisc that it was on (EINVAL), the device (ENODEV).
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL)
}

func device(ifindex uint32) netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: int(ifindex)}}
}

func clsact(ifindex uint32) netlink.Qdisc {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: int(ifindex),
		Handle:    netlink.MakeHandle(0xffff, 0),
		Parent:    netlink.HANDLE_CLSACT,
	}}
}

func isClsact(qdisc netlink.Qdisc) bool { return qdisc.Type() == "clsact" }

func parentOf(egress bool) uint32 {
	if egress {
		return netlink.HANDLE_MIN_EGRESS
	}
	return netlink.HANDLE_MIN_INGRESS
}

func direction(egress bool) string {
	if egress {
		return "egress"
	}
	return "ingress"
}
