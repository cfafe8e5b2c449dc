package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"warren/internal/datapath/model"
)

// maxServers is how many servers the programs have room for.
const maxServers = 1024

// SetServers makes these, at most 1,024, the ports that a node of a strict cluster talks to in clear before it is
// confirmed. What stays is never gone meanwhile. It may be called again with the same value.
func (d *Datapath) SetServers(servers []netip.AddrPort) error {
	if len(servers) > maxServers {
		return fmt.Errorf("%d servers: the programs have room for %d", len(servers), maxServers)
	}
	want := map[server]uint32{}
	for _, s := range servers {
		if !s.IsValid() || s.Port() == 0 {
			return fmt.Errorf("server %s has no address or no port", s)
		}
		key := server{Address: addressOf(s.Addr())}
		binary.BigEndian.PutUint16(key.Port[:], s.Port())
		want[key] = 0
	}
	return setAll(d.maps[mapServers], want)
}

// SetExemptions makes these, at most model.MaxExemptions, the traffic that stays in clear; the programs look
// for it when Config.Exemptions says so. What stays is never gone meanwhile. It may be called again
// with the same value.
func (d *Datapath) SetExemptions(list []model.Exemption) error {
	if len(list) > model.MaxExemptions {
		return fmt.Errorf("%d exemptions: the programs have room for %d", len(list), model.MaxExemptions)
	}
	want := map[prefixKey]exemptions{}
	for _, e := range list {
		if err := validKey(e.Prefix); err != nil {
			return fmt.Errorf("exemption: %w", err)
		}
		want[prefixKeyOf(e.Prefix)] = exemptionsFor(e.Prefix, list)
	}
	return setAll(d.maps[mapExemptions], want)
}

// exemptionsFor returns what is exempt within a prefix: a program finds the longest prefix only.
func exemptionsFor(prefix netip.Prefix, list []model.Exemption) (found exemptions) {
	for _, e := range list {
		if e.Prefix.Bits() <= prefix.Bits() && e.Prefix.Contains(prefix.Addr()) {
			found.List[found.Count] = exemption{Protocol: e.Protocol, Port: e.Port}
			found.Count++
		}
	}
	return found
}

// setAll writes what is wanted and not there, and then removes what is not wanted.
func setAll[K, V comparable](m *ebpf.Map, want map[K]V) error {
	have := map[K]V{}
	if err := readAll(m, func(key K, value V) { have[key] = value }); err != nil {
		return err
	}
	for key, value := range want {
		if old, ok := have[key]; ok && old == value {
			continue
		}
		if err := m.Put(key, value); err != nil {
			return fmt.Errorf("write map %s: %w", mapName(m), err)
		}
	}
	for key := range have {
		if _, ok := want[key]; ok {
			continue
		}
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove from map %s: %w", mapName(m), err)
		}
	}
	return nil
}
