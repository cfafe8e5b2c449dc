package plan

import "warren/internal/cluster"

// Slot is one of the devices that a node may have. A device has one private key, and accepts from an address
// only what one peer has encrypted. So that a key can be replaced without a gap, each pair of an own key and
// a key of a peer that are in use together has a device of its own at both ends:
//
//	                             own key of an odd epoch    of an even epoch
//	peers' keys of odd epochs    0  warren0   port          1  warren0b  port + 1
//	peers' keys of even epochs   2  warren0c  port + 2      3  warren0d  port + 3
//
// A node whose key has never changed, among others like it, has slot 0 alone; one whose key is being
// replaced has the neighbours in its rows as well, and so have its peers in their columns. A node receives by
// all of its slots all the time, and sends to each peer by one.
type Slot uint8

// Slots is how many there are.
const Slots = 4

// SlotOf returns the slot for an own key and peers' keys of these epochs.
func SlotOf(own, peer uint32) Slot { return Slot(1&^own | 1&^peer<<1) }

// Own reports whether it is a slot for the own key of that epoch.
func (s Slot) Own(epoch uint32) bool { return s&1 == SlotOf(epoch, 1) }

// Holds reports whether peers with keys of that epoch are in the slot.
func (s Slot) Holds(epoch uint32) bool { return s&2 == SlotOf(1, epoch) }

// Device returns the name of the slot's device, from the configured name.
func (s Slot) Device(base string) string { return base + [Slots]string{"", "b", "c", "d"}[s%Slots] }

// Port returns the UDP port of the slot's device, from the configured port. A record has that of peers with
// odd epochs; the others add what PeerPort does.
func (s Slot) Port(base uint16) uint16 { return base + uint16(s) }

// PeerPort returns the port of the device that a peer has for the slot's own key, from the one in its record.
func (s Slot) PeerPort(published uint16) uint16 { return published + uint16(s&1)<<1 }

// LiveKeys returns the keys of a node that have a slot, newest first: one, or two while it replaces the
// older one. A record with more has only the newest of odd and of even epochs.
func LiveKeys(node *cluster.Node) []cluster.Key {
	newest, ok := node.CurrentKey()
	if !ok {
		return nil
	}
	var other cluster.Key
	for _, key := range node.Keys {
		if key.Epoch%2 != newest.Epoch%2 && key.Public != newest.Public && key.Epoch > other.Epoch {
			other = key
		}
	}
	if other.Epoch == 0 {
		return []cluster.Key{newest}
	}
	return []cluster.Key{newest, other}
}

// keyInUse returns the key of a node by which its addresses are reached: the newest to which this node
// sends; the newest one when it sends to none.
func keyInUse(node *cluster.Node, paths map[cluster.PublicKey]Path) (key cluster.Key, ok bool) {
	live := LiveKeys(node)
	for _, key := range live {
		if paths[key.Public].Send {
			return key, true
		}
	}
	if len(live) == 0 {
		return cluster.Key{}, false
	}
	return live[0], true
}
