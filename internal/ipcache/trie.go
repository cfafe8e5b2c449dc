package ipcache

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// key is a canonical prefix as the trie compares it: the address in the leading bits of hi and lo.
type key struct {
	hi, lo uint64
	bits   uint8
	v4     bool
}

func keyOf(prefix netip.Prefix) key {
	addr := prefix.Addr()
	if addr.Is4() {
		raw := addr.As4()
		return key{hi: uint64(binary.BigEndian.Uint32(raw[:])) << 32, bits: uint8(prefix.Bits()), v4: true}
	}
	raw := addr.As16()
	return key{
		hi: binary.BigEndian.Uint64(raw[:8]), lo: binary.BigEndian.Uint64(raw[8:]),
		bits: uint8(prefix.Bits()),
	}
}

func (k key) prefix() netip.Prefix {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], k.hi)
	binary.BigEndian.PutUint64(raw[8:], k.lo)
	if k.v4 {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte(raw[:4])), int(k.bits))
	}
	return netip.PrefixFrom(netip.AddrFrom16(raw), int(k.bits))
}

// bit returns the bit at position i, counted from the left.
func (k key) bit(i uint8) uint64 {
	if i < 64 {
		return k.hi >> (63 - i) & 1
	}
	return k.lo >> (127 - i) & 1
}

// common returns how many leading bits k and other share, at most the length of the shorter one.
func (k key) common(other key) uint8 {
	shared := bits.LeadingZeros64(k.hi ^ other.hi)
	if shared == 64 {
		shared += bits.LeadingZeros64(k.lo ^ other.lo)
	}
	return min(uint8(shared), k.bits, other.bits)
}

// compare orders keys as netip.Prefix.Compare orders prefixes: IPv4 first, by address, then by length.
func (k key) compare(other key) int {
	if k.v4 != other.v4 {
		if k.v4 {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(k.hi, other.hi), cmp.Compare(k.lo, other.lo), cmp.Compare(k.bits, other.bits))
}

// cut returns the first n bits of k.
func (k key) cut(n uint8) key {
	k.bits = n
	if n < 64 {
		k.hi, k.lo = k.hi&^(1<<(64-n)-1), 0
	} else {
		k.lo &^= 1<<(128-n) - 1
	}
	return k
}

// mark says what a transaction has to look at again.
type mark uint8

const (
	// markPath: there is a mark at or below this node.
	markPath mark = 1 << iota
	// markFacts: the facts of this prefix changed.
	markFacts
)

// node is a prefix of the trie: one with a record, or the fork of two that have one.
type node struct {
	key    key
	marks  mark
	record handle
	child  [2]handle
}

// trie is a binary trie without nodes of one child and no record (a Patricia trie), one root for each
// family. Preorder is prefix order: a covering prefix before what it covers, then by address.
type trie struct {
	nodes slab[node]
	roots [2]handle // IPv4, IPv6
}

func (t *trie) root(v4 bool) *handle {
	if v4 {
		return &t.roots[0]
	}
	return &t.roots[1]
}

// covers visits the nodes with a record that cover k, from the widest to k itself.
func (t *trie) covers(k key, visit func(n *node)) {
	for h := *t.root(k.v4); h != 0; {
		n := t.nodes.at(h)
		if n.key.common(k) < n.key.bits {
			return
		}
		if n.record != 0 {
			visit(n)
		}
		if n.key.bits == k.bits {
			return
		}
		h = n.child[k.bit(n.key.bits)]
	}
}

// reach returns the node of k, which it makes when there is none, with markPath on the way to it.
// The caller gives a new node its record.
func (t *trie) reach(k key) (handle, *node) {
	link := t.root(k.v4)
	for *link != 0 {
		n := t.nodes.at(*link)
		common := n.key.common(k)
		if common < n.key.bits {
			return t.fork(link, k, common)
		}
		n.marks |= markPath
		if common == k.bits {
			return *link, n
		}
		link = &n.child[k.bit(common)]
	}
	h, n := t.nodes.alloc()
	n.key, n.marks = k, markPath
	*link = h
	return h, n
}

// fork puts a node for k above or beside the node of link, with which it shares the first common bits.
func (t *trie) fork(link *handle, k key, common uint8) (handle, *node) {
	old := *link
	oldSide := t.nodes.at(old).key.bit(common)
	h, n := t.nodes.alloc()
	n.key, n.marks = k, markPath
	*link = h
	if common == k.bits {
		n.child[oldSide] = old
		return h, n
	}
	top, fork := t.nodes.alloc()
	fork.key, fork.marks = k.cut(common), markPath
	fork.child[oldSide], fork.child[1-oldSide] = old, h
	*link = top
	return h, n
}

// prune returns what has to stand in the place of h: h itself while it has a record or forks, else
// what is left of its children.
func (t *trie) prune(h handle) handle {
	n := t.nodes.at(h)
	if n.record != 0 || n.child[0] != 0 && n.child[1] != 0 {
		return h
	}
	rest := n.child[0] | n.child[1] // at least one of them is 0
	t.nodes.release(h)
	return rest
}

// walk visits the nodes with a record under h, in prefix order, until visit returns false.
func (t *trie) walk(h handle, visit func(n *node) bool) bool {
	if h == 0 {
		return true
	}
	n := t.nodes.at(h)
	if n.record != 0 && !visit(n) {
		return false
	}
	return t.walk(n.child[0], visit) && t.walk(n.child[1], visit)
}
