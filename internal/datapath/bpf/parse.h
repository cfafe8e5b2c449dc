/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * From bytes to struct packet. Nothing here looks at a map or decides where a packet goes.
 *
 * All reads are bpf_skb_load_bytes(): they also reach what a driver, GRO or a packet ring left
 * outside the linear part of the skb.
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
#include "maps.h"
#include "reason.h"

/* 802.1Q and 802.1ad tags that are looked behind, besides the one that the kernel keeps aside. */
#define MAX_TAGS 2

/* IPv6 extension headers that are looked behind. */
#define MAX_EXTENSIONS 8

#define PROTOCOL_HIP   139 /* RFC 7401 */
#define PROTOCOL_SHIM6 140 /* RFC 5533 */

#define IPV4_DONT_FRAGMENT  0x4000
#define IPV4_MORE_FRAGMENTS 0x2000
#define IPV4_OFFSET	    0x1fff
#define IPV6_OFFSET	    0xfff8

enum fragment {
	FRAGMENT_NONE = 0,
	FRAGMENT_FIRST =
		1, /* or an IPv6 packet with a fragment header and nothing cut (RFC 6946) */
	FRAGMENT_LATER = 2,
};

struct packet {
	union {
		struct pair ends;
		struct {
			struct address src;
			struct address dst;
		};
	};
	__u32 mark;
	__u32 fragment_id; /* network byte order; fragments only */
	__u16 ethertype;   /* ETH_P_IP or ETH_P_IPV6 */
	__u16 length;	   /* as the IP header says, with it */
	__u8 tags;	   /* in the payload, and the one the kernel keeps aside */
	__u8 protocol; /* behind the extension headers that were walked, also of later fragments */
	__u8 hop_limit;
	__u8 fragment;	 /* enum fragment */
	__u16 l4_offset; /* of the layer 4 header from the IP header; 0 for later fragments */
	/*
	 * The same from the beginning of what was parsed. The verifier of Linux 6.1 follows every
	 * value that 32 bits may have here.
	 */
	__u16 transport;
	bool authenticated; /* behind an AH, whose sum covers layer 4 */
	bool dont_fragment; /* IPv4 with that flag, and all IPv6 */

	/* What follows needs the layer 4 header; zero when that is not in this packet. */
	__u8 icmp_type; /* of ICMP in IPv4, of ICMPv6 in IPv6 */
	bool wireguard; /* UDP whose payload begins as WireGuard messages do */
	/*
	 * Host byte order. Of WireGuard, and where an exemption or a server may be meant, of TCP,
	 * UDP and SCTP.
	 */
	__u16 sport;
	__u16 dport;

	/* Filled in by the program where it matters. */
	bool own_datagram; /* the first fragment of this datagram was WireGuard's own */
	bool exempt;	   /* an exemption is about the packet */
	bool server;	   /* whole TCP from or to the port of a server */
	bool in_clear;	   /* of a connection that a silent peer began in clear */
};

struct vlan_tag {
	__be16 tci;
	__be16 ethertype;
};

struct fragment_header {
	__u8 nexthdr;
	__u8 reserved;
	__be16 offset; /* 13 bits, two reserved, more fragments */
	__be32 id;
};

/* The UDP header and how a WireGuard message begins: type 1 to 4, three zero bytes. */
struct wireguard_header {
	__be16 sport;
	__be16 dport;
	__be16 len;
	__be16 check;
	__u8 type;
	__u8 reserved[3];
};

static __always_inline bool is_vlan(__u16 ethertype)
{
	return ethertype == ETH_P_8021Q || ethertype == ETH_P_8021AD;
}

/* Walk the link layer: set pkt->ethertype and pkt->tags, advance *offset to the IP header. */
static __always_inline enum reason parse_link(struct __sk_buff *skb, __u32 header_len,
					      struct packet *pkt, __u32 *offset)
{
	struct vlan_tag tag;
	__be16 ethertype;
	__u8 version;
	int i;

	if (header_len == 0) {
		/* Nothing but the packet says what it is: skb->protocol is the sender's word. */
		if (bpf_skb_load_bytes(skb, 0, &version, sizeof(version)))
			return REASON_MALFORMED;
		pkt->ethertype = version >> 4 == 4 ? ETH_P_IP : version >> 4 == 6 ? ETH_P_IPV6 : 0;
		return REASON_NONE;
	}
	if (bpf_skb_load_bytes(skb, header_len - sizeof(ethertype), &ethertype, sizeof(ethertype)))
		return REASON_MALFORMED;
	pkt->tags = skb->vlan_present != 0;
	pkt->ethertype = bpf_ntohs(ethertype);
	*offset = header_len;
	for (i = 0; i < MAX_TAGS && is_vlan(pkt->ethertype); i++) {
		if (bpf_skb_load_bytes(skb, *offset, &tag, sizeof(tag)))
			return REASON_MALFORMED;
		pkt->tags++;
		pkt->ethertype = bpf_ntohs(tag.ethertype);
		*offset += sizeof(tag);
	}
	return is_vlan(pkt->ethertype) ? REASON_VLAN_TOO_DEEP : REASON_NONE;
}

static __always_inline bool is_icmp(const struct packet *pkt)
{
	return pkt->protocol == (pkt->ethertype == ETH_P_IP ? IPPROTO_ICMP : IPPROTO_ICMPV6);
}

static __always_inline bool has_ports(const struct packet *pkt)
{
	return pkt->protocol == IPPROTO_TCP || pkt->protocol == IPPROTO_UDP ||
	       pkt->protocol == IPPROTO_SCTP;
}

/* Read the layer 4 header as far as a decision may need it. */
static __always_inline void parse_transport(struct __sk_buff *skb, __u32 offset, struct packet *pkt)
{
	struct wireguard_header udp;

	if (is_icmp(pkt)) {
		bpf_skb_load_bytes(skb, offset, &pkt->icmp_type, sizeof(pkt->icmp_type));
		return;
	}
	if (pkt->protocol == IPPROTO_UDP && !bpf_skb_load_bytes(skb, offset, &udp, sizeof(udp)))
		pkt->wireguard = udp.type >= 1 && udp.type <= 4 &&
				 !(udp.reserved[0] | udp.reserved[1] | udp.reserved[2]);
	else if ((mode != MODE_STRICT && !exempting) || !has_ports(pkt) ||
		 bpf_skb_load_bytes(skb, offset, &udp, sizeof(udp.sport) + sizeof(udp.dport)))
		return;
	pkt->sport = bpf_ntohs(udp.sport);
	pkt->dport = bpf_ntohs(udp.dport);
}

static __always_inline struct address ipv4_address(__be32 address)
{
	return (struct address){{0, 0, bpf_htonl(0xffff), address}};
}

static __always_inline enum reason parse_ipv4(struct __sk_buff *skb, __u32 offset,
					      struct packet *pkt)
{
	struct iphdr ip;
	__u16 fragment;

	if (bpf_skb_load_bytes(skb, offset, &ip, sizeof(ip)))
		return REASON_MALFORMED;
	if (ip.version != 4 || ip.ihl < 5 || offset + ip.ihl * 4 > skb->len)
		return REASON_MALFORMED;
	pkt->src = ipv4_address(ip.saddr);
	pkt->dst = ipv4_address(ip.daddr);
	pkt->protocol = ip.protocol;
	pkt->hop_limit = ip.ttl;
	pkt->length = bpf_ntohs(ip.tot_len);
	fragment = bpf_ntohs(ip.frag_off);
	pkt->dont_fragment = fragment & IPV4_DONT_FRAGMENT;
	if (fragment & (IPV4_MORE_FRAGMENTS | IPV4_OFFSET)) {
		pkt->fragment = fragment & IPV4_OFFSET ? FRAGMENT_LATER : FRAGMENT_FIRST;
		pkt->fragment_id = ip.id;
	}
	if (pkt->fragment != FRAGMENT_LATER) {
		pkt->l4_offset = ip.ihl * 4;
		pkt->transport = offset + pkt->l4_offset;
		parse_transport(skb, pkt->transport, pkt);
	}
	return REASON_NONE;
}

/* Step over one extension header. False: there is none here, or not the whole of its first bytes.
 */
static __always_inline bool skip_extension(struct __sk_buff *skb, __u32 *offset, struct packet *pkt)
{
	struct fragment_header fragment;
	struct ipv6_opt_hdr header;

	switch (pkt->protocol) {
	case IPPROTO_FRAGMENT:
		if (bpf_skb_load_bytes(skb, *offset, &fragment, sizeof(fragment)))
			return false;
		pkt->protocol = fragment.nexthdr;
		pkt->fragment =
			bpf_ntohs(fragment.offset) & IPV6_OFFSET ? FRAGMENT_LATER : FRAGMENT_FIRST;
		pkt->fragment_id = fragment.id;
		*offset += sizeof(fragment);
		return true;
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_DSTOPTS:
	case IPPROTO_MH:
	case PROTOCOL_HIP:
	case PROTOCOL_SHIM6:
	case IPPROTO_AH:
		if (bpf_skb_load_bytes(skb, *offset, &header, sizeof(header)))
			return false;
		/* AH counts in words of 4 bytes less two (RFC 4302), the others in 8 less one. */
		*offset += pkt->protocol == IPPROTO_AH ? (header.hdrlen + 2) * 4
						       : (header.hdrlen + 1) * 8;
		pkt->authenticated |= pkt->protocol == IPPROTO_AH;
		pkt->protocol = header.nexthdr;
		return true;
	}
	return false;
}

static __always_inline enum reason parse_ipv6(struct __sk_buff *skb, __u32 offset,
					      struct packet *pkt)
{
	__u32 start = offset;
	struct ipv6hdr ip;
	int i;

	if (bpf_skb_load_bytes(skb, offset, &ip, sizeof(ip)))
		return REASON_MALFORMED;
	if (ip.version != 6)
		return REASON_MALFORMED;
	__builtin_memcpy(&pkt->src, &ip.saddr, sizeof(pkt->src));
	__builtin_memcpy(&pkt->dst, &ip.daddr, sizeof(pkt->dst));
	pkt->protocol = ip.nexthdr;
	pkt->hop_limit = ip.hop_limit;
	pkt->length = bpf_ntohs(ip.payload_len) + sizeof(ip);
	pkt->dont_fragment = true;
	offset += sizeof(ip);
	for (i = 0; i < MAX_EXTENSIONS && pkt->fragment != FRAGMENT_LATER; i++) {
		if (!skip_extension(skb, &offset, pkt))
			break;
	}
	/* An extension header that was not stepped over is not a layer 4 that anybody asks for. */
	if (pkt->fragment != FRAGMENT_LATER) {
		pkt->l4_offset = offset - start;
		pkt->transport = offset;
		parse_transport(skb, offset, pkt);
	}
	return REASON_NONE;
}

/*
 * Fill in *pkt, which is all zero, from the bytes. REASON_NONE: the addresses are known. Otherwise
 * the reason why they are not.
 */
static __always_inline enum reason parse(struct __sk_buff *skb, __u32 header_len,
					 struct packet *pkt)
{
	__u32 offset = 0;
	enum reason reason = parse_link(skb, header_len, pkt, &offset);

	if (reason != REASON_NONE)
		return reason;
	pkt->mark = skb->mark;
	switch (pkt->ethertype) {
	case ETH_P_IP:
		return parse_ipv4(skb, offset, pkt);
	case ETH_P_IPV6:
		return parse_ipv6(skb, offset, pkt);
	}
	return REASON_NOT_IP;
}
