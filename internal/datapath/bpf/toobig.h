/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Telling a pod that its packet is too large for the tunnel, as a router in front of a narrower
 * link would. internal/datapath/model/toobig.go says the same in Go.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/icmpv6.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "config.h"
#include "decide.h"
#include "maps.h"
#include "parse.h"
#include "reason.h"

/*
 * Sizes that every host takes (RFC 791, RFC 8200): nobody is told less, and an error quotes as much
 * of the packet as makes it so large (RFC 1812 4.3.2.3, RFC 4443 2.4 c), which a packet that does
 * not fit always has.
 */
#define SMALLEST_MTU4 576
#define SMALLEST_MTU6 1280

/* Types of ICMP in IPv4 (RFC 792). */
enum icmp_type {
	ICMP_DEST_UNREACH = 3,
	ICMP_SOURCE_QUENCH = 4,
	ICMP_REDIRECT = 5,
	ICMP_TIME_EXCEEDED = 11,
	ICMP_PARAMETER_PROBLEM = 12,
};

#define ICMP_FRAGMENTATION_NEEDED 4 /* code of ICMP_DEST_UNREACH */

struct icmp_header {
	__u8 type;
	__u8 code;
	__be16 check;
	__be16 unused;
	__be16 mtu; /* ICMPv6 has 4 bytes for it, and this is the lower half */
};

/* One error per sender and receiver (RFC 1812 4.3.2.8, RFC 4443 2.4 f). */
#define TELL_INTERVAL_NS 100000000ULL

/* The source of packets that are handed back, known to users: "warrn", locally administered. */
static const __u8 hand_back_mac[ETH_ALEN] = {0x02, 0x77, 0x61, 0x72, 0x72, 0x6e};

struct too_big4 {
	__u8 pad[2];
	struct ethhdr ethernet;
	struct iphdr ip;
	struct icmp_header icmp;
	__u8 quote[SMALLEST_MTU4 - sizeof(struct iphdr) - sizeof(struct icmp_header)];
};
_Static_assert(sizeof(struct too_big4) == 16 + SMALLEST_MTU4, "struct too_big4");

struct too_big6 {
	__u8 pad[2];
	struct ethhdr ethernet;
	struct ipv6hdr ip;
	struct icmp_header icmp;
	__u8 quote[SMALLEST_MTU6 - sizeof(struct ipv6hdr) - sizeof(struct icmp_header)];
};
_Static_assert(sizeof(struct too_big6) == 16 + SMALLEST_MTU6, "struct too_big6");

union too_big {
	struct too_big4 v4;
	struct too_big6 v6;
};

/* Where an error is put together: it is larger than a stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, union too_big);
} scratch SEC(".maps");

/* No error is the answer to one (RFC 1122 3.2.2, RFC 4443 2.4 e). */
static __always_inline bool is_icmp_error(const struct packet *pkt)
{
	if (!is_icmp(pkt))
		return false;
	if (pkt->ethertype == ETH_P_IPV6)
		return pkt->icmp_type < ICMPV6_INFOMSG_MASK || pkt->icmp_type == ND_LAST;
	switch (pkt->icmp_type) {
	case ICMP_DEST_UNREACH:
	case ICMP_SOURCE_QUENCH:
	case ICMP_REDIRECT:
	case ICMP_TIME_EXCEEDED:
	case ICMP_PARAMETER_PROBLEM:
		return true;
	}
	return false;
}

/* Nobody answers what went to many: multicast of either family, and the IPv4 broadcast address. */
static __always_inline bool is_group(const struct address *address)
{
	__u32 ipv4 = bpf_ntohl(address->word[3]);

	if (address->word[0] | address->word[1] || address->word[2] != bpf_htonl(0xffff))
		return bpf_ntohl(address->word[0]) >> 24 == 0xff;
	return ipv4 >> 28 == 0xe || ipv4 == 0xffffffff;
}

/*
 * Whether the sender of a packet that the tunnel does not carry whole may be told so. It never is a
 * socket of this node's: the size that it learns is that of a destination, and the encrypted
 * packets have the same one.
 */
static __always_inline bool is_tellable(const struct packet *pkt, const struct entry *src,
					__u16 mtu)
{
	return oversize != OVERSIZE_FRAGMENT && is_local(src) && !is_local_node(src) &&
	       pkt->dont_fragment && pkt->fragment != FRAGMENT_LATER && !is_icmp_error(pkt) &&
	       !is_group(&pkt->dst) &&
	       mtu >= (pkt->ethertype == ETH_P_IP ? SMALLEST_MTU4 : SMALLEST_MTU6);
}

/* Whether the sender was not told a moment ago; from now on it was. */
static __always_inline bool may_tell(const struct packet *pkt)
{
	struct pair pair = {.src = pkt->src, .dst = pkt->dst};
	const __u64 *last = bpf_map_lookup_elem(&told, &pair);
	__u64 now = bpf_ktime_get_ns();

	if (last && now - *last < TELL_INTERVAL_NS)
		return false;
	bpf_map_update_elem(&told, &pair, &now, BPF_ANY);
	return true;
}

/* Add so many bytes, a multiple of 4, to an unfolded sum. bpf_csum_diff() takes 512 at once. */
static __always_inline __u32 add_up(void *bytes, __u32 len, __u32 sum)
{
	__u32 at;

#pragma clang loop unroll(full)
	for (at = 0; at < len; at += 512)
		sum = bpf_csum_diff(NULL, 0, bytes + at, len - at < 512 ? len - at : 512, sum);
	return sum;
}

/* The checksum from an unfolded sum (RFC 1071). */
static __always_inline __sum16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* "Fragmentation needed and DF set" (RFC 792, RFC 1191). */
static __always_inline bool compose4(struct __sk_buff *skb, struct too_big4 *error,
				     const struct packet *pkt, __u16 mtu)
{
	const __u32 len = sizeof(error->icmp) + sizeof(error->quote);

	error->ip = (struct iphdr){
		.version = 4,
		.ihl = sizeof(error->ip) / 4,
		.tos = 0xc0, /* RFC 1812 4.3.2.5 */
		.tot_len = bpf_htons(sizeof(error->ip) + len),
		.frag_off = bpf_htons(IPV4_DONT_FRAGMENT),
		.ttl = 64,
		.protocol = IPPROTO_ICMP,
		.saddr = pkt->dst.word[3],
		.daddr = pkt->src.word[3],
	};
	error->ip.check = fold(add_up(&error->ip, sizeof(error->ip), 0));
	error->icmp = (struct icmp_header){
		.type = ICMP_DEST_UNREACH,
		.code = ICMP_FRAGMENTATION_NEEDED,
		.mtu = bpf_htons(mtu),
	};
	if (bpf_skb_load_bytes(skb, link_header_len, error->quote, sizeof(error->quote)))
		return false;
	error->icmp.check = fold(add_up(&error->icmp, len, 0));
	return true;
}

/* "Packet too big" (RFC 4443 3.2). */
static __always_inline bool compose6(struct __sk_buff *skb, struct too_big6 *error,
				     const struct packet *pkt, __u16 mtu)
{
	const __u32 len = sizeof(error->icmp) + sizeof(error->quote);
	__be32 pseudo[] = {bpf_htonl(len), bpf_htonl(IPPROTO_ICMPV6)};
	__u32 sum;

	error->ip = (struct ipv6hdr){
		.version = 6,
		.payload_len = bpf_htons(len),
		.nexthdr = IPPROTO_ICMPV6,
		.hop_limit = 64,
	};
	__builtin_memcpy(&error->ip.saddr, &pkt->dst, sizeof(error->ip.saddr));
	__builtin_memcpy(&error->ip.daddr, &pkt->src, sizeof(error->ip.daddr));
	error->icmp = (struct icmp_header){
		.type = ICMPV6_PKT_TOOBIG,
		.mtu = bpf_htons(mtu),
	};
	if (bpf_skb_load_bytes(skb, link_header_len, error->quote, sizeof(error->quote)))
		return false;
	sum = add_up(pseudo, sizeof(pseudo), 0);
	sum = add_up(&error->ip.saddr, sizeof(error->ip.saddr) + sizeof(error->ip.daddr), sum);
	error->icmp.check = fold(add_up(&error->icmp, len, sum));
	return true;
}

/* The link layer header goes back to whoever sent the packet. */
static __always_inline void address_back(struct __sk_buff *skb, struct ethhdr *ethernet,
					 const struct packet *pkt)
{
	bpf_skb_load_bytes(skb, offsetof(struct ethhdr, h_source), ethernet->h_dest, ETH_ALEN);
	__builtin_memcpy(ethernet->h_source, hand_back_mac, ETH_ALEN);
	ethernet->h_proto = bpf_htons(pkt->ethertype);
}

/*
 * Make the packet these bytes. Cutting it makes an ordinary packet of GSO, and is refused for what
 * is inside a tunnel of the pod's own; the packet is unchanged then.
 *
 * The kernel may still owe the packet a checksum (CHECKSUM_PARTIAL), which it would write into the
 * error. It forgets about that when the place where the sum begins is taken away; Linux before 6.2
 * notices only when something else is taken away after it. In multiples of 4 the headers stay
 * aligned.
 */
static __always_inline bool replace(struct __sk_buff *skb, const struct packet *pkt,
				    const void *bytes, __u32 len)
{
	if (bpf_skb_change_tail(skb, len, 0))
		return false;
	bpf_skb_adjust_room(skb, -(((link_header_len + 4) & ~3) + pkt->l4_offset), BPF_ADJ_ROOM_MAC,
			    0);
	bpf_skb_adjust_room(skb, -4, BPF_ADJ_ROOM_MAC, 0);
	return !bpf_skb_change_tail(skb, len, 0) && !bpf_skb_store_bytes(skb, 0, bytes, len, 0);
}

/* Make the packet the error that answers it. */
static __noinline bool become_error(struct __sk_buff *skb, const struct packet *pkt, __u32 mtu)
{
	const __u32 link = sizeof(struct ethhdr) - link_header_len, zero = 0;
	union too_big *error = bpf_map_lookup_elem(&scratch, &zero);

	if (!error)
		return false;
	address_back(skb, &error->v4.ethernet, pkt);
	if (pkt->ethertype == ETH_P_IP)
		return compose4(skb, &error->v4, pkt, mtu) &&
		       replace(skb, pkt, (void *)&error->v4.ethernet + link,
			       link_header_len + SMALLEST_MTU4);
	return compose6(skb, &error->v6, pkt, mtu) &&
	       replace(skb, pkt, (void *)&error->v6.ethernet + link,
		       link_header_len + SMALLEST_MTU6);
}

/*
 * Tell the sender what fits: the packet becomes the error. It comes from the packet's destination,
 * since the route to that leads by this very device, and a reverse-path filter lets it in. With
 * OVERSIZE_AUTO the packet is sent before.
 */
static __always_inline struct verdict tell(struct __sk_buff *skb, const struct packet *pkt,
					   __u16 mtu)
{
	const bool send = oversize == OVERSIZE_AUTO;
	__u32 before = skb->len;

	/* A BPF_PROG_RUN sends nothing. */
	if (send && !report_verdict && bpf_clone_redirect(skb, tunnel_ifindex, 0))
		return verdict(ACTION_TUNNEL, REASON_OVERSIZE);
	if (become_error(skb, pkt, mtu)) {
		skb->mark = handed_back(skb->mark);
		return verdict(ACTION_HAND_BACK,
			       send ? REASON_TOO_BIG_TOLD : REASON_TOO_BIG_REFUSED);
	}
	if (send)
		return verdict(ACTION_DROP, REASON_OVERSIZE);
	return skb->len == before ? verdict(ACTION_TUNNEL, REASON_OVERSIZE)
				  : verdict(ACTION_DROP, REASON_HELPER_FAILED);
}
