package datapath

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
)

// beginSilence forgets what peers began in clear when they were silent before, if they become so by these entries: since
// then those connections were encrypted, and they stay so.
func (d *Datapath) beginSilence(upserts []PrefixEntry) error {
	begins := map[netip.Addr]bool{}
	for _, upsert := range upserts {
		if !upsert.Entry.Silent {
			continue
		}
		entry, _, err := d.Lookup(upsert.Prefix.Addr())
		if err != nil {
			return err
		}
		if !entry.Silent {
			begins[upsert.Prefix.Addr()] = true
		}
	}
	if len(begins) == 0 {
		return nil
	}
	var stale []flow
	err := readAll(d.maps[mapFlows], func(key flow, _ uint64) {
		if begins[key.Client.addr()] {
			stale = append(stale, key)
		}
	})
	if err != nil {
		return err
	}
	for _, key := range stale {
		if err := d.maps[mapFlows].Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("forget a connection in map %s: %w", mapFlows, err)
		}
	}
	return nil
}
