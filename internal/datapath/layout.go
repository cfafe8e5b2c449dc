package datapath

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"warren/internal/cluster"
	"warren/internal/datapath/model"
	"warren/internal/plan"
)

// LayoutVersion is the version of everything that outlives the agent in the kernel: the structs of
// bpf/maps.h and the numbers of bpf/reason.h; one more flag or map is no other version. It is part of the path of the pinned maps.
const LayoutVersion = 2

// address is struct address: an IPv6 address, or an IPv4 address as ::ffff:a.b.c.d.
type address [16]byte

func addressOf(addr netip.Addr) address {
	if !addr.IsValid() {
		return address{}
	}
	return addr.As16()
}

// addr returns the address unmapped; the zero address is no address.
func (a address) addr() netip.Addr {
	if a == (address{}) {
		return netip.Addr{}
	}
	return netip.AddrFrom16(a).Unmap()
}

// prefixKey is struct prefix_key; an IPv4 prefix has 96 bits more than people say.
type prefixKey struct {
	Bits    uint32
	Address address
}

const mappedBits = 96

func prefixKeyOf(prefix netip.Prefix) prefixKey {
	bits := prefix.Bits()
	if prefix.Addr().Is4() {
		bits += mappedBits
	}
	return prefixKey{Bits: uint32(bits), Address: prefix.Addr().As16()}
}

func (k prefixKey) prefix() netip.Prefix {
	return cluster.CanonicalPrefix(netip.PrefixFrom(netip.AddrFrom16(k.Address), int(k.Bits)))
}

// covered is where the IPv4 addresses are in the maps: a shorter prefix would swallow them.
var covered = netip.AddrFrom16([16]byte{10: 0xff, 11: 0xff})

// validKey refuses a prefix that has no place in the maps.
func validKey(prefix netip.Prefix) error {
	switch {
	case !prefix.IsValid(), prefix != cluster.CanonicalPrefix(prefix):
		return fmt.Errorf("prefix %s is not in canonical form", prefix)
	case prefix.Addr().Is6() && prefix.Contains(covered):
		return fmt.Errorf("prefix %s covers all IPv4 addresses as they are kept in the maps", prefix)
	}
	return nil
}

// Flags of struct entry; the first two are cluster.Flags.
const (
	entryFlags   = uint8(cluster.FlagNode | cluster.FlagLocal)
	entryHasPair = uint8(4)
	entrySend    = uint8(8)
	entryEnforce = uint8(16)
	entrySlot    = 5 // two bits from this one on
	entrySilent  = uint8(128)
)

// entryValue is struct entry.
type entryValue struct {
	Identity uint32
	Underlay uint32
	Endpoint address
	Key      uint8
	Flags    uint8
	MTU      uint16
	// Check is 0 in the map of prefixes.
	Check uint32
}

// exactValue is struct exact_entry.
type exactValue struct {
	Entry entryValue
	Lock  uint32
	Pad   uint32
}

func exactValueOf(addr address, value entryValue) exactValue {
	value.Check = entryCheck(addr, value)
	return exactValue{Entry: value}
}

// entryCheck is entry_check() of bpf/maps.h.
func entryCheck(addr address, value entryValue) (sum uint32) {
	const factor = 0x9e3779b1
	for word := range slices.Chunk(addr[:], 4) {
		sum = sum*factor + binary.NativeEndian.Uint32(word)
	}
	return sum*factor + (uint32(value.MTU)<<16 | uint32(value.Flags)<<8 | uint32(value.Key))
}

func entryValueOf(entry plan.Entry) entryValue {
	value := entryValue{
		Identity: entry.Identity,
		Underlay: entry.Underlay,
		MTU:      entry.MTU,
		Flags:    uint8(entry.Flags) & entryFlags,
	}
	if entry.HasPair {
		value.Endpoint, value.Key = addressOf(entry.Endpoint), uint8(entry.Key)
		value.Flags |= entryHasPair
	}
	if entry.Send {
		value.Flags |= entrySend
	}
	if entry.Enforce {
		value.Flags |= entryEnforce
	}
	if entry.Silent {
		value.Flags |= entrySilent
	}
	value.Flags |= uint8(entry.Slot%plan.Slots) << entrySlot
	return value
}

func (v entryValue) entry() plan.Entry {
	return plan.Entry{
		Identity: v.Identity,
		Underlay: v.Underlay,
		MTU:      v.MTU,
		Endpoint: v.Endpoint.addr(),
		Key:      cluster.KeyID(v.Key),
		Flags:    cluster.Flags(v.Flags & entryFlags),
		HasPair:  v.Flags&entryHasPair != 0,
		Send:     v.Flags&entrySend != 0,
		Enforce:  v.Flags&entryEnforce != 0,
		Slot:     plan.Slot(v.Flags >> entrySlot % plan.Slots),
		Silent:   v.Flags&entrySilent != 0,
	}
}

// underlayValue is struct underlay.
type underlayValue struct {
	MAC [6]uint8
	L3  uint8
	Pad uint8
}

// counterValue is struct counter.
type counterValue struct {
	Packets uint64
	Bytes   uint64
}

// peerReason is struct peer_reason.
type peerReason struct {
	Endpoint address
	Program  uint8
	Reason   uint8
	Pad      [6]uint8
}

// server is struct server.
type server struct {
	Address address
	Port    [2]byte // network byte order
	Pad     [2]uint8
}

// exemption is struct exemption.
type exemption struct {
	Protocol uint8
	Pad      uint8
	Port     uint16
}

// exemptions is struct exemptions.
type exemptions struct {
	Count uint32
	List  [model.MaxExemptions]exemption
}

// pair is struct pair.
type pair struct {
	Src address
	Dst address
}

// flow is struct flow.
type flow struct {
	Server     address
	Client     address
	ServerPort [2]byte // network byte order
	ClientPort [2]byte
}

// pathFragment is struct path_fragment.
type pathFragment struct {
	At   uint64
	Size uint32
	Pad  uint32
}

// datagram is struct datagram.
type datagram struct {
	Src address
	Dst address
	ID  uint32
}
