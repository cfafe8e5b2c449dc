/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The datapath: to_netdev on the egress of every underlay device, from_netdev on its ingress,
 * from_tunnel on the ingress of the WireGuard device. Each parses, decides, acts and counts, in
 * this order, and every way out has one reason.
 *
 * A packet that passes goes on to the next program of the chain (TC_ACT_UNSPEC, which TCX calls
 * TCX_NEXT). Nothing here needs more than Linux 5.15 has.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "config.h"
#include "decide.h"
#include "flow.h"
#include "maps.h"
#include "parse.h"
#include "reason.h"
#include "size.h"
#include "toobig.h"

char __license[] SEC("license") = "Dual BSD/GPL";

/*
 * Fragments leave right after one another, so that a datagram is remembered for as long as an IP
 * identification cannot come round again.
 */
#define DATAGRAM_LIFETIME_NS 1000000000ULL

/* What report() leaves in skb->cb. */
enum report {
	REPORT_ACTION = 0,
	REPORT_REASON = 1,
	REPORT_IFINDEX = 2,
};

static __always_inline struct datagram datagram_of(const struct packet *pkt)
{
	return (struct datagram){.src = pkt->src, .dst = pkt->dst, .id = pkt->fragment_id};
}

static __always_inline bool is_own_datagram(const struct packet *pkt)
{
	struct datagram key = datagram_of(pkt);
	const __u64 *left = bpf_map_lookup_elem(&own_datagrams, &key);

	return left && bpf_ktime_get_ns() - *left < DATAGRAM_LIFETIME_NS;
}

static __always_inline void remember_datagram(const struct packet *pkt)
{
	struct datagram key = datagram_of(pkt);
	__u64 now = bpf_ktime_get_ns();

	bpf_map_update_elem(&own_datagrams, &key, &now, BPF_ANY);
}

/*
 * Whether an exemption for the address of one of its ends is about a packet. It is a global
 * function, so that the verifier follows its loop once, and not once for each state of the caller.
 */
__noinline bool is_exempt_for(const struct address *address, __u32 protocol, __u32 sport,
			      __u32 dport)
{
	struct prefix_key key = {.prefixlen = 128};
	const struct exemptions *found;
	__u32 i;

	if (!address)
		return false;
	key.address = *address;
	found = bpf_map_lookup_elem(&exempt_prefixes, &key);
	for (i = 0; found && i < MAX_EXEMPTIONS && i < found->count; i++) {
		const struct exemption *exemption = &found->list[i];

		if (exemption->protocol && exemption->protocol != protocol)
			continue;
		if (!exemption->port || exemption->port == sport || exemption->port == dport)
			return true;
	}
	return false;
}

static __always_inline bool is_exempt(const struct packet *pkt)
{
	return is_exempt_for(&pkt->src, pkt->protocol, pkt->sport, pkt->dport) ||
	       is_exempt_for(&pkt->dst, pkt->protocol, pkt->sport, pkt->dport);
}

/* Look up what a decision may need about a packet to or from a peer. */
static __always_inline void inform(struct packet *pkt, const struct entry *peer)
{
	if (is_local(peer))
		return;
	if (exempting)
		pkt->exempt = is_exempt(pkt);
	if (mode == MODE_STRICT && !(has_pair(peer) && peer->flags & ENTRY_SEND) &&
	    pkt->protocol == IPPROTO_TCP && pkt->fragment == FRAGMENT_NONE)
		pkt->server = is_server(&pkt->dst, pkt->dport) || is_server(&pkt->src, pkt->sport);
}

/* Tell the BPF_PROG_RUN that asked what was decided. */
static __always_inline void report(struct __sk_buff *skb, struct verdict verdict, __u32 ifindex)
{
	if (!report_verdict)
		return;
	skb->cb[REPORT_ACTION] = verdict.action;
	skb->cb[REPORT_REASON] = verdict.reason;
	skb->cb[REPORT_IFINDEX] = ifindex;
}

/*
 * Leave nothing but a link layer header in front of the IP packet, as a layer 3 device wants it:
 * the redirect takes off the former and would hand over a VLAN tag as the beginning of the packet.
 */
static __always_inline bool strip_to_ip(struct __sk_buff *skb, const struct packet *pkt)
{
	__u32 headers = link_header_len + (pkt->ethertype == ETH_P_IP ? sizeof(struct iphdr)
								      : sizeof(struct ipv6hdr));
	__be16 ethertype;
	int i;

	for (i = 0; i < MAX_TAGS + 1; i++) {
		if (i < pkt->tags && bpf_skb_vlan_pop(skb))
			return false;
	}
	if (pkt->tags) {
		/*
		 * bpf_skb_vlan_pop() goes by skb->protocol and does nothing when the sender (a
		 * packet socket) set that to something else.
		 */
		if (bpf_skb_load_bytes(skb, ETH_HLEN - sizeof(ethertype), &ethertype,
				       sizeof(ethertype)) ||
		    bpf_ntohs(ethertype) != pkt->ethertype)
			return false;
	}
	/* WireGuard looks for the IP header in the linear part only (ip_tunnel_parse_protocol). */
	if ((void *)(long)skb->data + headers > (void *)(long)skb->data_end)
		return bpf_skb_pull_data(skb, headers) == 0;
	return true;
}

/* Make a packet fit that is to take the tunnel. */
static __always_inline struct verdict into_tunnel(struct __sk_buff *skb, const struct packet *pkt,
						  const struct entry *src, const struct entry *dst)
{
	__u16 mtu = tunnel_mtu(dst);
	enum reason reason;

	if (!strip_to_ip(skb, pkt))
		return verdict(ACTION_DROP, REASON_HELPER_FAILED);
	clamp_mss(skb, link_header_len, pkt, mtu);
	reason = fit(skb, pkt, mtu);
	if (reason == REASON_HELPER_FAILED)
		return verdict(ACTION_DROP, reason);
	if (reason == REASON_OVERSIZE && is_tellable(pkt, src, mtu) && may_tell(pkt))
		return tell(skb, pkt, mtu, tunnel_of(dst));
	return verdict(ACTION_TUNNEL, reason);
}

/*
 * Egress of an underlay device. The entries are looked up only as far as they can matter: the
 * source for what looks like our own WireGuard (and then the destination for nothing else), the
 * destination otherwise, and the source again when the destination is to be encrypted to.
 */
SEC("tc")
int to_netdev(struct __sk_buff *skb)
{
	struct entry src_entry, dst_entry;
	const struct entry *src = NULL, *dst = NULL;
	struct packet pkt = {};
	__u32 bytes = skb->len, ifindex = 0;
	enum reason unreadable = parse(skb, link_header_len, &pkt);
	struct verdict result;

	if (unreadable) {
		result = decide_unreadable(unreadable);
	} else {
		if (pkt.fragment == FRAGMENT_LATER && is_marked(pkt.mark))
			pkt.own_datagram = is_own_datagram(&pkt);
		if (looks_encrypted(&pkt))
			src = lookup_entry(&pkt.src, &src_entry);
		if (!is_local_node(src))
			dst = lookup_entry(&pkt.dst, &dst_entry);
		if (dst && !src)
			src = lookup_entry(&pkt.src, &src_entry);
		if (dst) {
			inform(&pkt, dst);
			pkt.in_clear = leaves_in_clear(skb, &pkt.ends, pkt.transport,
						       is_silent(&pkt, dst));
		}
		result = decide_egress(&pkt, src, dst);
	}
	if (result.reason == REASON_ENCRYPTED && pkt.fragment == FRAGMENT_FIRST)
		remember_datagram(&pkt);

	if (result.action == ACTION_TUNNEL)
		result = into_tunnel(skb, &pkt, src, dst);
	if (result.action == ACTION_TUNNEL)
		ifindex = tunnel_of(dst);
	else if (result.action == ACTION_HAND_BACK)
		ifindex = skb->ifindex;

	count(PROGRAM_TO_NETDEV, result.reason, bytes);
	count_peer(PROGRAM_TO_NETDEV, result.reason, dst, bytes);
	report(skb, result, ifindex);
	switch (result.action) {
	case ACTION_TUNNEL:
		return bpf_redirect(ifindex, 0);
	case ACTION_HAND_BACK:
		return bpf_redirect(ifindex, BPF_F_INGRESS);
	case ACTION_DROP:
		return TC_ACT_SHOT;
	}
	return TC_ACT_UNSPEC;
}

/* What a router made of a datagram of WireGuard's on its way from another machine. */
static __always_inline void remember_path(const struct packet *pkt, const struct entry *src)
{
	struct path_fragment fragment = {.at = bpf_ktime_get_ns(), .size = pkt->length};

	if (src && src->flags & ENTRY_NODE)
		bpf_map_update_elem(&path_fragments, &pkt->src, &fragment, BPF_ANY);
}

/*
 * Ingress of an underlay device: takes the mark off what from_tunnel handed back, and refuses what
 * should not have come in clear.
 */
SEC("tc")
int from_netdev(struct __sk_buff *skb)
{
	struct entry src_entry, dst_entry;
	const struct entry *src = NULL, *dst = NULL;
	struct packet pkt = {};
	struct flow flow = {};
	struct verdict result;
	enum reason unreadable;

	if (is_marked(skb->mark)) {
		skb->mark &= ~mark_mask;
		result = verdict(ACTION_PASS, REASON_HANDED_BACK);
		goto out;
	}
	unreadable = parse(skb, link_header_len, &pkt);
	if (unreadable) {
		result = unreadable == REASON_VLAN_TOO_DEEP ? pass_unless_strict(unreadable)
							    : verdict(ACTION_PASS, unreadable);
		goto out;
	}
	src = lookup_entry(&pkt.src, &src_entry);
	if (src)
		dst = lookup_entry(&pkt.dst, &dst_entry);
	if (src && dst)
		inform(&pkt, src);
	if (dst && is_silent(&pkt, src)) {
		flow = flow_to_server(&pkt);
		pkt.in_clear = comes_in_clear(skb, &flow, pkt.transport);
	}
	result = decide_ingress(&pkt, src, dst);
	if (result.reason == REASON_BOOTSTRAP && pkt.in_clear)
		remember_flow(&flow);
	if (result.reason == REASON_ENCRYPTED_IN && pkt.fragment == FRAGMENT_FIRST)
		remember_path(&pkt, src);
out:
	count(PROGRAM_FROM_NETDEV, result.reason, skb->len);
	count_peer(PROGRAM_FROM_NETDEV, result.reason, src, skb->len);
	report(skb, result, 0);
	return result.action == ACTION_DROP ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

/* The underlay device that a decrypted packet would have come in by, or NULL. */
static __always_inline const struct underlay *choose_underlay(const struct entry *src,
							      __u32 *ifindex)
{
	const struct underlay *underlay = NULL;

	if (src && src->underlay) {
		*ifindex = src->underlay;
		underlay = bpf_map_lookup_elem(&underlays, ifindex);
	}
	if (!underlay) {
		*ifindex = primary_underlay;
		underlay = bpf_map_lookup_elem(&underlays, ifindex);
	}
	return underlay;
}

/* Make the packet look as if it came in by the underlay device, but for mark and source MAC. */
static __always_inline bool dress(struct __sk_buff *skb, const struct packet *pkt,
				  const struct underlay *underlay)
{
	struct ethhdr ethernet = {.h_proto = bpf_htons(pkt->ethertype)};

	if (!underlay->l3) {
		__builtin_memcpy(ethernet.h_dest, underlay->mac, ETH_ALEN);
		__builtin_memcpy(ethernet.h_source, hand_back_mac, ETH_ALEN);
		/* Refused for a packet over 16 KiB that is not GSO (SKB_MAX_ALLOC). */
		if (bpf_skb_change_head(skb, sizeof(ethernet), 0) ||
		    bpf_skb_store_bytes(skb, 0, &ethernet, sizeof(ethernet), 0))
			return false;
	}
	skb->mark = handed_back(skb->mark);
	return true;
}

/* Hand a probe to the agent. */
static __always_inline void report_arrival(struct __sk_buff *skb)
{
	struct arrival *arrival = bpf_ringbuf_reserve(&arrivals, sizeof(*arrival), 0);
	__u32 copied = skb->len;

	if (!arrival)
		return;
	if (copied > sizeof(arrival->data))
		copied = sizeof(arrival->data);
	arrival->at = bpf_ktime_get_ns();
	arrival->len = skb->len;
	/* It has an IPv6 header, which the verifier does not know. */
	if (copied < sizeof(struct ipv6hdr) || bpf_skb_load_bytes(skb, 0, arrival->data, copied))
		copied = 0;
	arrival->copied = copied;
	bpf_ringbuf_submit(arrival, 0);
}

/* Ingress of the WireGuard device, which has no link layer header. */
SEC("tc")
int from_tunnel(struct __sk_buff *skb)
{
	const struct underlay *underlay = NULL;
	struct entry src_entry;
	struct flow flow;
	const struct entry *src = NULL;
	struct packet pkt = {};
	__u32 bytes = skb->len, ifindex = 0;
	struct verdict result;
	enum reason unreadable = parse(skb, 0, &pkt);

	if (unreadable) {
		result = verdict(ACTION_PASS, unreadable);
		goto out;
	}
	if (is_probe(&pkt)) {
		report_arrival(skb);
		result = verdict(ACTION_DROP, REASON_PROBE);
		goto out;
	}
	src = lookup_entry(&pkt.src, &src_entry);
	if (ingress_mode == INGRESS_UNDERLAY)
		underlay = choose_underlay(src, &ifindex);
	result = decide_decrypted(underlay);
	/* The peer's clamp is for its own tunnel, which may carry larger packets than this one. */
	clamp_mss(skb, 0, &pkt, tunnel_mtu(src));
	if (is_silent(&pkt, src)) {
		flow = flow_to_server(&pkt);
		forget_flow(skb, &flow, pkt.transport);
	}
	if (result.action == ACTION_HAND_BACK && underlay && !dress(skb, &pkt, underlay))
		result = verdict(ACTION_PASS, REASON_HELPER_FAILED);
out:
	if (result.action != ACTION_HAND_BACK)
		ifindex = 0;
	count(PROGRAM_FROM_TUNNEL, result.reason, bytes);
	count_peer(PROGRAM_FROM_TUNNEL, result.reason, src, bytes);
	report(skb, result, ifindex);
	switch (result.action) {
	case ACTION_HAND_BACK:
		return bpf_redirect(ifindex, BPF_F_INGRESS);
	case ACTION_DROP:
		return TC_ACT_SHOT;
	}
	return TC_ACT_UNSPEC;
}
