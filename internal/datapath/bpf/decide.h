/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * From a parsed packet, the entries of its addresses and the configuration to a verdict. Nothing
 * here reads a packet or a map. internal/datapath/model says the same in Go, with the table.
 */
#pragma once

#include "config.h"
#include "maps.h"
#include "parse.h"
#include "reason.h"

#define ND_FIRST     133 /* router solicitation (RFC 4861) */
#define ND_LAST	     137 /* redirect */
#define ND_HOP_LIMIT 255

enum action {
	ACTION_PASS = 0,
	ACTION_DROP = 1,
	ACTION_TUNNEL = 2,    /* redirect to the egress of the WireGuard device */
	ACTION_HAND_BACK = 3, /* redirect to the ingress of an underlay device */
};

struct verdict {
	__u8 action; /* enum action */
	__u8 reason; /* enum reason */
};

static __always_inline struct verdict verdict(enum action action, enum reason reason)
{
	return (struct verdict){.action = action, .reason = reason};
}

/* What only strict mode drops. */
static __always_inline struct verdict pass_unless_strict(enum reason reason)
{
	return verdict(mode == MODE_STRICT ? ACTION_DROP : ACTION_PASS, reason);
}

static __always_inline bool is_marked(__u32 mark)
{
	return (mark & mark_mask) == mark_value;
}

/* The mark of a packet that is handed back, from the one it has. */
static __always_inline __u32 handed_back(__u32 mark)
{
	return (mark & ~mark_mask) | mark_value;
}

static __always_inline bool is_local(const struct entry *entry)
{
	return entry && entry->flags & ENTRY_LOCAL;
}

static __always_inline bool is_local_node(const struct entry *entry)
{
	return is_local(entry) && entry->flags & ENTRY_NODE;
}

static __always_inline bool has_pair(const struct entry *entry)
{
	return entry->flags & ENTRY_HAS_PAIR;
}

/* Whether one of this node's devices sends from the port. */
static __always_inline bool is_own_port(__u16 port)
{
	int slot;

	for (slot = 0; slot < SLOTS; slot++) {
		if (tunnel_ifindex[slot] && port == (__u16)(wireguard_port + slot))
			return true;
	}
	return false;
}

/* Index of the device that encrypts for the peer, 0 while there is none. */
static __always_inline __u32 tunnel_of(const struct entry *peer)
{
	return peer ? tunnel_ifindex[(peer->flags & ENTRY_SLOT) >> ENTRY_SLOT_SHIFT] : 0;
}

/*
 * The part of "own WireGuard packet" that the packet itself shows. A later fragment shows no port:
 * it is its datagram's first fragment that counts.
 */
static __always_inline bool looks_encrypted(const struct packet *pkt)
{
	if (!is_marked(pkt->mark) || pkt->protocol != IPPROTO_UDP)
		return false;
	if (pkt->fragment == FRAGMENT_LATER)
		return pkt->own_datagram;
	return pkt->wireguard && is_own_port(pkt->sport);
}

/* RFC 6980 forbids fragmented neighbour discovery, and RFC 4861 any other hop limit. */
static __always_inline bool is_neighbour_discovery(const struct packet *pkt)
{
	return pkt->ethertype == ETH_P_IPV6 && pkt->protocol == IPPROTO_ICMPV6 &&
	       pkt->icmp_type >= ND_FIRST && pkt->icmp_type <= ND_LAST &&
	       pkt->hop_limit == ND_HOP_LIMIT && pkt->fragment == FRAGMENT_NONE;
}

/* Asked of packets of a peer that is not confirmed: only strict mode needs an exception. */
static __always_inline bool is_bootstrap(const struct packet *pkt)
{
	return mode == MODE_STRICT && pkt->server;
}

/* to_netdev, for what parse() could not read. */
static __always_inline struct verdict decide_unreadable(enum reason reason)
{
	switch (reason) {
	case REASON_MALFORMED:
		return mode == MODE_OBSERVE ? verdict(ACTION_PASS, REASON_WOULD_DROP)
					    : verdict(ACTION_DROP, reason);
	case REASON_VLAN_TOO_DEEP:
		return pass_unless_strict(reason);
	default:
		return verdict(ACTION_PASS, reason);
	}
}

/*
 * to_netdev: a packet about to leave by an underlay device. src may be NULL where it cannot
 * matter, so that the program need not look it up: see to_netdev().
 */
static __always_inline struct verdict
decide_egress(const struct packet *pkt, const struct entry *src, const struct entry *dst)
{
	if (looks_encrypted(pkt) && is_local_node(src))
		return verdict(ACTION_PASS, REASON_ENCRYPTED);
	if (is_neighbour_discovery(pkt))
		return verdict(ACTION_PASS, REASON_NEIGHBOUR_DISCOVERY);
	if (!dst)
		return verdict(ACTION_PASS, REASON_NOT_CLUSTER);
	if (is_local(dst))
		return verdict(ACTION_PASS, REASON_LOCAL_DESTINATION);
	if (pkt->exempt)
		return verdict(ACTION_PASS, REASON_EXEMPT);
	if (!has_pair(dst))
		return is_local(src) && is_bootstrap(pkt) ? verdict(ACTION_PASS, REASON_BOOTSTRAP)
							  : pass_unless_strict(REASON_NO_PAIR);
	if (dst->key == 0)
		return verdict(ACTION_PASS, REASON_KEY_ZERO);
	if (!is_local(src))
		return pass_unless_strict(REASON_SOURCE_NOT_ALLOWED);
	if (mode == MODE_OBSERVE)
		return verdict(ACTION_PASS, REASON_WOULD_REDIRECT);
	if (!(dst->flags & ENTRY_SEND))
		return is_bootstrap(pkt) ? verdict(ACTION_PASS, REASON_BOOTSTRAP)
					 : pass_unless_strict(REASON_NOT_CONFIRMED);
	if (pkt->in_clear)
		return verdict(ACTION_PASS, REASON_BOOTSTRAP);
	if (tunnel_of(dst) == 0)
		return pass_unless_strict(REASON_NO_TUNNEL);
	return verdict(ACTION_TUNNEL, REASON_REDIRECTED);
}

/*
 * from_netdev: a packet that came in by an underlay device and was not handed back. The mirror of
 * decide_egress() at the sender: what that one would have encrypted must not come in clear.
 *
 * WireGuard's ports are known to be those of all slots, since a peer may begin with one before this
 * node does.
 *
 * A later fragment of UDP shows no port. It passes, for it is worth nothing without its first
 * fragment, and of those only WireGuard's pass.
 */
static __always_inline struct verdict
decide_ingress(const struct packet *pkt, const struct entry *src, const struct entry *dst)
{
	if (is_neighbour_discovery(pkt))
		return verdict(ACTION_PASS, REASON_NEIGHBOUR_DISCOVERY);
	if (pkt->wireguard && (__u16)(pkt->dport - wireguard_port) < SLOTS &&
	    (!dst || dst->flags & ENTRY_NODE))
		return verdict(ACTION_PASS, REASON_ENCRYPTED_IN);
	if (!src || !dst)
		return verdict(ACTION_PASS, REASON_NOT_CLUSTER);
	if (is_local(src))
		return verdict(ACTION_PASS, REASON_LOCAL_SOURCE);
	if (pkt->exempt)
		return verdict(ACTION_PASS, REASON_EXEMPT);
	if (src->flags & ENTRY_NODE && pkt->fragment == FRAGMENT_LATER &&
	    pkt->protocol == IPPROTO_UDP)
		return verdict(ACTION_PASS, REASON_UDP_FRAGMENT_IN);
	if (!has_pair(src))
		return is_bootstrap(pkt) ? verdict(ACTION_PASS, REASON_BOOTSTRAP)
					 : pass_unless_strict(REASON_NO_PAIR);
	if (src->key == 0 || (has_pair(dst) && dst->key == 0))
		return verdict(ACTION_PASS, REASON_KEY_ZERO);
	if (pkt->in_clear || (!(src->flags & ENTRY_SEND) && is_bootstrap(pkt)))
		return verdict(ACTION_PASS, REASON_BOOTSTRAP);
	if (src->flags & ENTRY_ENFORCE)
		return pass_unless_strict(REASON_CLEAR_FROM_PEER);
	return verdict(ACTION_PASS, REASON_CLEAR_FROM_PEER);
}

/*
 * from_tunnel: between addresses of fe80:7761:7272:656e::/64 ("warren" in ASCII), which only
 * Warren's own probes have.
 */
static __always_inline bool is_probe(const struct packet *pkt)
{
	const __be32 high = bpf_htonl(0xfe807761), low = bpf_htonl(0x7272656e);

	return pkt->src.word[0] == high && pkt->src.word[1] == low && pkt->dst.word[0] == high &&
	       pkt->dst.word[1] == low;
}

/* from_tunnel: a decrypted packet, and the underlay device it would have come in by. */
static __always_inline struct verdict decide_decrypted(const struct underlay *underlay)
{
	if (ingress_mode == INGRESS_DEVICE)
		return verdict(ACTION_PASS, REASON_LEFT_ON_DEVICE);
	if (!underlay)
		return verdict(ACTION_PASS, REASON_NO_UNDERLAY);
	return verdict(ACTION_HAND_BACK, REASON_DECRYPTED);
}
