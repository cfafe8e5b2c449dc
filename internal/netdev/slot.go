package netdev

import (
	"errors"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const kindBPF = "bpf"

// The ends of the order in which the kernel runs filters: by priority, the smallest first. It chooses
// downwards from 0xc000 for those who do not ask for one.
const (
	firstPriority = 1
	lastPriority  = 0xffff
)

// The handle tells the filters of one priority apart. Ours are 0x776172XX ("war"); the kernel numbers
// those of others from 1. The lowest bit remembers in the kernel, across restarts and kill −9,
// that the clsact qdisc below the filter was added by Replace.
const (
	handleBase  = 0x77617200
	handleMask  = 0xffffff00
	handleStep  = 2
	addedClsact = 1
)

// slot is the place of a filter on its hook.
type slot struct {
	chain    uint32
	priority uint16
	protocol uint16 // host byte order
	handle   uint32
}

// choose returns where a filter of that name goes among those that are there: where it is already,
// or else first on ingress and last on egress. added says that the qdisc is ours.
//
// On ingress, a priority that BPF filters of others hold is shared: the kernel runs the newest filter
// of a priority first, so that ours comes first even where priority 1 is taken, as by Cilium. A
// priority of another kind or protocol cannot be shared, the next one is taken. On egress,
// sharing would put ours before theirs.
func choose(there []Filter, egress bool, name string, added bool) (slot, error) {
	if filter, ok := named(there, name); ok {
		return filter.slot, nil
	}
	step, priority := 1, firstPriority
	if egress {
		step, priority = -1, lastPriority
	}
	for ; priority >= firstPriority && priority <= lastPriority; priority += step {
		if place, ok := placeAt(there, uint16(priority), !egress); ok {
			if added {
				place.handle |= addedClsact
			}
			return place, nil
		}
	}
	return slot{}, errors.New("no priority is left on the hook")
}

// placeAt returns a place of that priority: alone, or if share is set beside BPF filters.
func placeAt(there []Filter, priority uint16, share bool) (slot, bool) {
	handle := uint32(handleBase)
	for _, other := range there {
		if other.chain != 0 || other.priority != priority {
			continue
		}
		if !share || other.Kind != kindBPF || other.protocol != unix.ETH_P_ALL {
			return slot{}, false
		}
		if other.ours() {
			handle = max(handle, other.handle&^addedClsact+handleStep)
		}
	}
	place := slot{priority: priority, protocol: unix.ETH_P_ALL, handle: handle}
	return place, place.ours() // not when the handles have run out
}

// ours says whether the handle is of Warren's range.
func (s slot) ours() bool { return s.handle&handleMask == handleBase }

// ownsClsact says whether this is a place of ours that remembers that the qdisc was added for it.
func (s slot) ownsClsact() bool { return s.ours() && s.handle&addedClsact != 0 }

// filter returns the request that names the place; without program (fd −1).
func (s slot) filter(ifindex uint32, egress bool) *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: int(ifindex),
			Parent:    parentOf(egress),
			Priority:  s.priority,
			Protocol:  s.protocol,
			Handle:    s.handle,
		},
		Fd: -1,
	}
}

func slotOf(attrs *netlink.FilterAttrs) slot {
	place := slot{priority: attrs.Priority, protocol: attrs.Protocol, handle: attrs.Handle}
	if attrs.Chain != nil {
		place.chain = *attrs.Chain
	}
	return place
}
