package datapath

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"warren/internal/datapath/model"
)

// Counter is how many packets left a program for a reason since the maps were created; it
// outlives the agent. A packet that the kernel will cut for the device (GSO) counts once, with
// all its bytes. Bytes include link layer headers, where there are any.
type Counter struct {
	Program model.Program
	Reason  model.Reason
	Packets uint64
	Bytes   uint64
}

// PeerCounter is a Counter for one peer, of reasons with PerPeer.
type PeerCounter struct {
	// Endpoint of the peer's entry; invalid when the entry has no pair.
	Endpoint netip.Addr
	Counter
}

// Counters returns one counter for each program and each reason it has, zero or not, in their order.
func (d *Datapath) Counters() ([]Counter, error) { return readCounters(d.maps[mapReasons]) }

func readCounters(m *ebpf.Map) ([]Counter, error) {
	var all []Counter
	for _, program := range model.Programs() {
		for _, reason := range model.Reasons() {
			if !slices.Contains(reason.Programs(), program) {
				continue
			}
			var values []counterValue
			if err := m.Lookup(uint32(program)*model.MaxReason+uint32(reason), &values); err != nil {
				return nil, fmt.Errorf("read counter %v of %v: %w", reason, program, err)
			}
			all = append(all, newCounter(program, reason, values))
		}
	}
	return all, nil
}

func newCounter(program model.Program, reason model.Reason, perCPU []counterValue) Counter {
	c := Counter{Program: program, Reason: reason}
	for _, value := range perCPU {
		c.Packets += value.Packets
		c.Bytes += value.Bytes
	}
	return c
}

// iterationAttempts bounds how often a walk is begun again because an entry went away below it.
const iterationAttempts = 5

// PeerCounters returns what is counted by peer, by endpoint, program and reason. The kernel forgets
// the peers that were quiet for longest when there are more than it has room for.
func (d *Datapath) PeerCounters() ([]PeerCounter, error) { return peerCounters(d.maps[mapPeerReasons]) }

func peerCounters(m *ebpf.Map) ([]PeerCounter, error) {
	var all []PeerCounter
	var err error
	for range iterationAttempts {
		if all, err = readPeerCounters(m); !errors.Is(err, ebpf.ErrIterationAborted) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read counters of peers: %w", err)
	}
	slices.SortFunc(all, func(a, b PeerCounter) int {
		return cmp.Or(a.Endpoint.Compare(b.Endpoint), cmp.Compare(a.Program, b.Program), cmp.Compare(a.Reason, b.Reason))
	})
	return all, nil
}

func readPeerCounters(m *ebpf.Map) ([]PeerCounter, error) {
	var all []PeerCounter
	var key peerReason
	var values []counterValue
	iterator := m.Iterate()
	for iterator.Next(&key, &values) {
		all = append(all, PeerCounter{
			Endpoint: key.Endpoint.addr(),
			Counter:  newCounter(model.Program(key.Program), model.Reason(key.Reason), values),
		})
	}
	return all, iterator.Err()
}
