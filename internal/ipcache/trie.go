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

// mark says what settle has to look at.
type mark uint8

const (
	// markFacts: the facts of this prefix changed.
	markFacts mark = 1 << iota
	// markRoute: and among them what it leaves to those under it without owner or pair of their own.
	markRoute
	// markTraits: and among them what it leaves to all under it, labels and flags.
	markTraits
	// markLeft and markRight: there is a mark under this child.
	markLeft
	markRight
)

// need says which records take their owner or their pair from above.
type need uint8

const (
	// needOwn: the one of this prefix.
	needOwn need = 1 << iota
	// needLeft and needRight: one under this child.
	needLeft
	needRight
)

// node is a prefix of the trie: one with a record, or the fork of two that have one. It is a key
// spelled out, so that it takes 32 bytes and never lies across two cache lines. What a node has to
// know of its children is kept in itself: a child that is not visited is not touched, as it is
// seldom in the processor's cache.
type node struct {
	hi, lo uint64
	child  [2]handle
	record handle
	bits   uint8
	v4     bool
	marks  mark
	needs  need
}

func (n *node) key() key { return key{n.hi, n.lo, n.bits, n.v4} }

func (n *node) setNeed(which need, needy bool) {
	if n.needs &^= which; needy {
		n.needs |= which
	}
}

func (n *node) setKey(k key) { n.hi, n.lo, n.bits, n.v4 = k.hi, k.lo, k.bits, k.v4 }

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
		if n.key().common(k) < n.bits {
			return
		}
		if n.record != 0 {
			visit(n)
		}
		if n.bits == k.bits {
			return
		}
		h = n.child[k.bit(n.bits)]
	}
}

// reach returns the node of k, which it makes when there is none, with marks on the way to it.
// The caller gives a new node its record.
func (t *trie) reach(k key) (handle, *node) {
	link := t.root(k.v4)
	for *link != 0 {
		n := t.nodes.at(*link)
		common := n.key().common(k)
		if common < n.bits {
			return t.fork(link, k, common)
		}
		if common == k.bits {
			return *link, n
		}
		child := k.bit(common)
		n.marks |= markLeft << child
		link = &n.child[child]
	}
	h, n := t.nodes.alloc()
	n.setKey(k)
	*link = h
	return h, n
}

// fork puts a node for k above or beside the node of link, with which it shares the first common bits.
func (t *trie) fork(link *handle, k key, common uint8) (handle, *node) {
	old := *link
	side := t.nodes.at(old).key().bit(common)
	h, n := t.nodes.alloc()
	n.setKey(k)
	top, above := h, n
	if common < k.bits {
		top, above = t.nodes.alloc()
		above.setKey(k.cut(common))
		above.child[1-side], above.marks = h, markLeft<<(1-side)
	}
	above.child[side] = old
	// Settle has to visit the old node too: it may have marks of the same transaction, and above does
	// not know its needs.
	above.marks |= markLeft << side
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
