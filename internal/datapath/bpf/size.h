/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What makes packets fit into the tunnel. Nothing here decides whether a packet takes it.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "config.h"
#include "parse.h"
#include "reason.h"

#define TCP_OPTION_END	0
#define TCP_OPTION_NOP	1
#define TCP_OPTION_MSS	2
#define MAX_TCP_OPTIONS 40 /* bytes, and so many options at the most */

struct mss_option {
	__u8 kind;
	__u8 len;
	__be16 value;
};

/* Largest packet that the tunnel carries whole to or from a peer, NULL: it is unknown; 0: nobody
 * said. */
static __always_inline __u16 tunnel_mtu(const struct entry *peer)
{
	if (!peer || !peer->mtu)
		return inner_mtu;
	return inner_mtu && inner_mtu < peer->mtu ? inner_mtu : peer->mtu;
}

/* The segment size that fits without IP and TCP options, which the sender takes off (RFC 6691). */
static __always_inline __u16 largest_mss(const struct packet *pkt, __u16 mtu)
{
	return mtu - sizeof(struct tcphdr) -
	       (pkt->ethertype == ETH_P_IP ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
}

/* Whether the packet shows a TCP header that may be changed, and where. */
static __always_inline bool load_tcp(struct __sk_buff *skb, __u32 offset, const struct packet *pkt,
				     struct tcphdr *tcp)
{
	return pkt->protocol == IPPROTO_TCP && pkt->l4_offset && !pkt->authenticated &&
	       !bpf_skb_load_bytes(skb, offset, tcp, sizeof(*tcp)) && tcp->doff >= 5;
}

/* Write a smaller segment size into the option at that offset of the TCP header at tcp_offset. */
static __always_inline void lower_mss(struct __sk_buff *skb, __u32 tcp_offset, __u32 option,
				      __be16 old, __be16 new)
{
	__u32 value = tcp_offset + option + offsetof(struct mss_option, value);

	if (bpf_skb_store_bytes(skb, value, &new, sizeof(new), 0))
		return;
	/* At an odd offset the two bytes belong to two words of the checksum. */
	if (option % 2) {
		old = __builtin_bswap16(old);
		new = __builtin_bswap16(new);
	}
	/* Leaves a checksum that the device or the receiver has yet to fill in (CHECKSUM_PARTIAL).
	 */
	bpf_l4_csum_replace(skb, tcp_offset + offsetof(struct tcphdr, check), old, new,
			    sizeof(new));
}

/*
 * Lower the segment size in the options of the TCP header at tcp_offset, which ends at end from
 * there. It is a global function, so that the verifier follows its loop once, and not once for each
 * state of the caller. Returns how many it has lowered.
 */
__noinline int clamp_options(struct __sk_buff *skb, __u32 tcp_offset, __u32 end, __u32 largest)
{
	__u32 at = sizeof(struct tcphdr);
	struct mss_option option;
	int i, lowered = 0;

	if (end > sizeof(struct tcphdr) + MAX_TCP_OPTIONS)
		return 0;
	for (i = 0; i < MAX_TCP_OPTIONS && at + sizeof(option) <= end; i++) {
		if (bpf_skb_load_bytes(skb, tcp_offset + at, &option, sizeof(option)) ||
		    option.kind == TCP_OPTION_END)
			break;
		if (option.kind == TCP_OPTION_NOP) {
			at++;
			continue;
		}
		if (option.len < 2)
			break;
		if (option.kind == TCP_OPTION_MSS && option.len == sizeof(option) &&
		    bpf_ntohs(option.value) > largest) {
			lower_mss(skb, tcp_offset, at, option.value, bpf_htons(largest));
			lowered++;
		}
		at += option.len;
	}
	return lowered;
}

/*
 * Lower the segment size that a SYN or SYN-ACK offers to what fits into the tunnel. A TCP that
 * sends no such option, or one that is cut short, is left as it is.
 */
static __always_inline void clamp_mss(struct __sk_buff *skb, __u32 ip_offset,
				      const struct packet *pkt, __u16 mtu)
{
	__u32 tcp_offset = ip_offset + pkt->l4_offset;
	struct tcphdr tcp;

	if (mtu && load_tcp(skb, tcp_offset, pkt, &tcp) && tcp.syn)
		clamp_options(skb, tcp_offset, tcp.doff * 4, largest_mss(pkt, mtu));
}

#define MAX_ROOM   4095 /* what bpf_skb_adjust_room() moves at once */
#define MAX_RECUTS 4

/*
 * Take excess bytes off the segments that the kernel will cut the packet into, without changing the
 * packet: room behind the IP header makes the kernel lower gso_size by as much, and is taken away
 * again with gso_size held. False: it is as it was, unless its length has changed.
 */
static __always_inline bool shrink_segments(struct __sk_buff *skb, __u32 excess)
{
	const __u64 flags = BPF_F_ADJ_ROOM_NO_CSUM_RESET;
	int i;

	for (i = 0; i < MAX_RECUTS && excess; i++) {
		__s32 room = excess < MAX_ROOM ? excess : MAX_ROOM;

		if (bpf_skb_adjust_room(skb, room, BPF_ADJ_ROOM_NET, flags) ||
		    bpf_skb_adjust_room(skb, -room, BPF_ADJ_ROOM_NET,
					flags | BPF_F_ADJ_ROOM_FIXED_GSO))
			return false;
		excess -= room;
	}
	return excess == 0;
}

/* What is in front of a packet inside VXLAN (RFC 7348), behind the UDP header. */
struct vxlan_header {
	__u8 flags; /* 8: the identifier is valid; the rest is 0 */
	__u8 reserved[3];
	__u8 identifier[4];
	__u8 ethernet[ETH_HLEN];
	__u8 version; /* of the IP header within, and more */
};

#define VXLAN_HLEN offsetof(struct vxlan_header, version)

/*
 * The bytes in front of each segment of TCP inside VXLAN, from the outer IP header; 0: it is none.
 * Not behind IPv6 extension headers within.
 */
static __always_inline __u32 vxlan_headers(struct __sk_buff *skb, const struct packet *pkt)
{
	__u32 headers = pkt->l4_offset + sizeof(struct udphdr);
	struct vxlan_header vxlan;
	struct tcphdr tcp;

	if (pkt->protocol != IPPROTO_UDP || !pkt->l4_offset ||
	    bpf_skb_load_bytes(skb, link_header_len + headers, &vxlan, sizeof(vxlan)) ||
	    vxlan.flags != 8)
		return 0;
	headers += VXLAN_HLEN;
	headers += vxlan.version >> 4 == 6 ? sizeof(struct ipv6hdr) : (vxlan.version & 0xf) * 4;
	if (bpf_skb_load_bytes(skb, link_header_len + headers, &tcp, sizeof(tcp)))
		return 0;
	return headers + tcp.doff * 4;
}

/*
 * The bytes in front of each segment of a GSO packet, from the IP header. Of TCP inside other
 * overlays the kernel tells by the length on the wire, which has these headers once for each
 * segment (qdisc_pkt_len_init; Linux 6.1 only looks at the outer ones). It counts VLAN tags that
 * were in the payload as well.
 */
static __always_inline __u32 segment_headers(struct __sk_buff *skb, const struct packet *pkt)
{
	struct tcphdr tcp;
	__u32 headers;

	if (load_tcp(skb, link_header_len + pkt->l4_offset, pkt, &tcp))
		return pkt->l4_offset + tcp.doff * 4;
	headers = vxlan_headers(skb, pkt);
	if (headers)
		return headers;
	if (skb->gso_segs > 1 && skb->wire_len > skb->len)
		return (skb->wire_len - skb->len) / (skb->gso_segs - 1) - link_header_len;
	return pkt->l4_offset + sizeof(struct udphdr);
}

/*
 * Make a packet that takes the tunnel fit, if that can be done without anybody noticing: TCP that
 * the kernel has not cut yet (GSO) is cut smaller, also inside an overlay. REASON_HELPER_FAILED:
 * the packet is broken. It is plain IP behind link_header_len bytes.
 */
static __always_inline enum reason fit(struct __sk_buff *skb, const struct packet *pkt, __u16 mtu)
{
	__u32 before = skb->len, segment = skb->gso_size, headers;

	if (!mtu || before - link_header_len <= mtu)
		return REASON_REDIRECTED;
	if (!segment)
		return REASON_OVERSIZE;
	headers = segment_headers(skb, pkt);
	if (headers + segment <= mtu)
		return REASON_REDIRECTED;
	if (headers >= mtu)
		return REASON_OVERSIZE;
	/* Refused by the kernel for what is not TCP: datagrams are not cut elsewhere. */
	if (shrink_segments(skb, headers + segment - mtu))
		return REASON_RECUT;
	return skb->len == before ? REASON_OVERSIZE : REASON_HELPER_FAILED;
}
