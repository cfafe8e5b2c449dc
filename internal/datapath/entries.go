package datapath

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"warren/internal/cluster"
	"warren/internal/plan"
)

// PrefixEntry is an entry and its prefix, masked and unmapped.
type PrefixEntry = plan.PrefixEntry

// Apply writes entries and then removes others, in batches where the kernel has them. An entry that
// is there is changed in place or replaced in one step: a packet meets the old or the new one. Since what
// is written comes first, an address that moves from one prefix to another is never unknown.
//
// failed are the prefixes that were not written or removed, in no order; everything else was done.
// The error says why, errors.Is(err, ErrMapFull) among others, and is nil when nothing failed.
func (d *Datapath) Apply(upserts []PrefixEntry, deletes []netip.Prefix) (failed []netip.Prefix, err error) {
	if err := d.beginSilence(upserts); err != nil {
		return append(prefixesOf(upserts), deletes...), err
	}
	exact := batch[address, exactValue]{m: d.maps[mapExact], option: optionAddresses, flags: ebpf.UpdateLock}
	prefixes := batch[prefixKey, entryValue]{m: d.maps[mapPrefix], option: optionPrefixes}
	var problems []error
	for _, upsert := range upserts {
		if err := validKey(upsert.Prefix); err != nil {
			failed, problems = append(failed, upsert.Prefix), append(problems, err)
		} else if value := entryValueOf(upsert.Entry); upsert.Prefix.IsSingleIP() {
			addr := addressOf(upsert.Prefix.Addr())
			exact.upserts.add(upsert.Prefix, addr)
			exact.values = append(exact.values, exactValueOf(addr, value))
		} else {
			prefixes.upserts.add(upsert.Prefix, prefixKeyOf(upsert.Prefix))
			prefixes.values = append(prefixes.values, value)
		}
	}
	for _, prefix := range deletes {
		switch {
		case validKey(prefix) != nil: // it cannot be there
		case prefix.IsSingleIP():
			exact.deletes.add(prefix, addressOf(prefix.Addr()))
		default:
			prefixes.deletes.add(prefix, prefixKeyOf(prefix))
		}
	}
	problems = append(problems, exact.update(), prefixes.update(), exact.remove(), prefixes.remove())
	failed = append(append(failed, exact.failed...), prefixes.failed...)
	return failed, errors.Join(problems...)
}

func prefixesOf(entries []PrefixEntry) []netip.Prefix {
	prefixes := make([]netip.Prefix, 0, len(entries))
	for _, e := range entries {
		prefixes = append(prefixes, e.Prefix)
	}
	return prefixes
}

// batchSize is the number of entries per system call.
const batchSize = 8192

// keyed are prefixes with their keys in a map.
type keyed[K any] struct {
	prefixes []netip.Prefix
	keys     []K
}

func (k *keyed[K]) add(prefix netip.Prefix, key K) {
	k.prefixes, k.keys = append(k.prefixes, prefix), append(k.keys, key)
}

// batch collects what is to be done to one map.
type batch[K, V any] struct {
	m      *ebpf.Map
	option string // to raise when the map is full
	flags  ebpf.MapUpdateFlags

	upserts keyed[K]
	values  []V
	deletes keyed[K]
	failed  []netip.Prefix
}

// update writes in batches; where one stops (the kernel's stop at the first error) it goes on one by one,
// so that a full map still takes the new value of what is in it.
func (b *batch[K, V]) update() error {
	options := &ebpf.BatchOptions{ElemFlags: uint64(b.flags)}
	for start := 0; start < len(b.values); start += batchSize {
		end := min(start+batchSize, len(b.values))
		done, err := b.m.BatchUpdate(b.upserts.keys[start:end], b.values[start:end], options)
		if err == nil {
			continue
		}
		if done >= end-start {
			done = 0 // it did not get as far as counting
		}
		if err := b.updateSingly(start+done, end); err != nil {
			b.failed = append(b.failed, b.upserts.prefixes[end:]...)
			return err
		}
	}
	return b.full()
}

// updateSingly remembers what did not fit; any other error ends it.
func (b *batch[K, V]) updateSingly(start, end int) error {
	for i := start; i < end; i++ {
		err := b.m.Update(b.upserts.keys[i], b.values[i], b.flags)
		switch {
		case err == nil:
		case isFull(err):
			b.failed = append(b.failed, b.upserts.prefixes[i])
		default:
			b.failed = append(b.failed, b.upserts.prefixes[i:end]...)
			return fmt.Errorf("write %s to map %s: %w", b.upserts.prefixes[i], mapName(b.m), err)
		}
	}
	return nil
}

// isFull: hashes say E2BIG, tries ENOSPC.
func isFull(err error) bool { return errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ENOSPC) }

func (b *batch[K, V]) full() error {
	if len(b.failed) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d of %d entries did not fit into the %d of %s; raise %s and restart the agent, which keeps what is there",
		ErrMapFull, len(b.failed), len(b.values), b.m.MaxEntries(), mapName(b.m), b.option)
}

// remove deletes one by one: a batch stops at the first key that is not there.
func (b *batch[K, V]) remove() error {
	for i, key := range b.deletes.keys {
		if err := b.m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			b.failed = append(b.failed, b.deletes.prefixes[i:]...)
			return fmt.Errorf("remove %s from map %s: %w", b.deletes.prefixes[i], mapName(b.m), err)
		}
	}
	return nil
}

func mapName(m *ebpf.Map) string {
	info, err := m.Info()
	if err != nil {
		return m.String()
	}
	return info.Name
}

// Entries reads all entries.
func (d *Datapath) Entries() (map[netip.Prefix]plan.Entry, error) {
	all := map[netip.Prefix]plan.Entry{}
	err := readAll(d.maps[mapExact], func(key address, value exactValue) {
		all[cluster.HostPrefix(key.addr())] = value.Entry.entry()
	})
	if err != nil {
		return nil, err
	}
	err = readAll(d.maps[mapPrefix], func(key prefixKey, value entryValue) {
		all[key.prefix()] = value.entry()
	})
	return all, err
}

// readAll hands every entry of a map to yield, some of them twice if the map changes meanwhile.
func readAll[K, V any](m *ebpf.Map, yield func(K, V)) error {
	err := readBatches(m, yield)
	if !errors.Is(err, ebpf.ErrNotSupported) {
		return err
	}
	var key K
	var value V
	iterator := m.Iterate()
	for iterator.Next(&key, &value) {
		yield(key, value)
	}
	if err := iterator.Err(); err != nil {
		return fmt.Errorf("read map %s: %w", mapName(m), err)
	}
	return nil
}

func readBatches[K, V any](m *ebpf.Map, yield func(K, V)) error {
	var cursor ebpf.MapBatchCursor
	keys, values := make([]K, batchSize), make([]V, batchSize)
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		last := errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !last {
			return fmt.Errorf("read map %s: %w", mapName(m), err)
		}
		for i := range n {
			yield(keys[i], values[i])
		}
		if last {
			return nil
		}
	}
}

// Lookup returns the entry that the programs find for an address: its own, else that of the longest
// prefix.
func (d *Datapath) Lookup(addr netip.Addr) (entry plan.Entry, found bool, err error) {
	prefix := cluster.HostPrefix(addr)
	var exact exactValue
	err = d.maps[mapExact].Lookup(addressOf(prefix.Addr()), &exact)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		err = d.maps[mapPrefix].Lookup(prefixKeyOf(prefix), &exact.Entry)
	}
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return plan.Entry{}, false, nil
	}
	if err != nil {
		return plan.Entry{}, false, fmt.Errorf("look up %s: %w", addr, err)
	}
	return exact.Entry.entry(), true, nil
}
