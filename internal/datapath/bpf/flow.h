/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Connections with a server of this node that a silent peer began in clear, since it has lost the
 * key that this node encrypts to. internal/datapath/model says when such a one is let in.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "config.h"
#include "maps.h"
#include "parse.h"

/* Whether a packet may be of such a connection: TCP of or to the machine of a silent peer. */
static __always_inline bool is_silent(const struct packet *pkt, const struct entry *peer)
{
	return mode != MODE_OBSERVE && peer && peer->flags & ENTRY_SILENT &&
	       pkt->protocol == IPPROTO_TCP && pkt->fragment == FRAGMENT_NONE;
}

/* The connection of a packet to a server, but for the ports. */
static __always_inline struct flow flow_to_server(const struct packet *pkt)
{
	return (struct flow){.server = pkt->dst, .client = pkt->src};
}

static __always_inline bool is_ipv4(const struct address *address)
{
	return !address->word[0] && !address->word[1] && address->word[2] == bpf_htonl(0xffff);
}

/*
 * Whether this machine listens at the server's end and has no connection between the two ends: of
 * what fits, the kernel finds a connection first.
 */
static __always_inline bool is_free(struct __sk_buff *skb, const struct flow *flow)
{
	bool ipv4 = is_ipv4(&flow->server), listens;
	struct bpf_sock_tuple ends = {};
	struct bpf_sock *sock;

	if (ipv4) {
		ends.ipv4.saddr = flow->client.word[3];
		ends.ipv4.daddr = flow->server.word[3];
		ends.ipv4.sport = flow->client_port;
		ends.ipv4.dport = flow->server_port;
	} else {
		__builtin_memcpy(ends.ipv6.saddr, &flow->client, sizeof(flow->client));
		__builtin_memcpy(ends.ipv6.daddr, &flow->server, sizeof(flow->server));
		ends.ipv6.sport = flow->client_port;
		ends.ipv6.dport = flow->server_port;
	}
	sock = bpf_skc_lookup_tcp(skb, &ends, ipv4 ? sizeof(ends.ipv4) : sizeof(ends.ipv6),
				  BPF_F_CURRENT_NETNS, 0);
	if (!sock)
		return false;
	listens = sock->state == BPF_TCP_LISTEN;
	bpf_sk_release(sock);
	return listens;
}

/*
 * What follows are global functions, so that the verifier follows them once, and not once for each
 * state of the caller. They read the TCP header at that offset for the ports, which the given
 * connection does not have yet. Linux 6.1 takes no key of a map but from the function's own stack.
 */

/* from_netdev: whether the packet belongs to such a connection, or begins one. Sets the ports. */
__noinline bool comes_in_clear(struct __sk_buff *skb, struct flow *flow, __u32 transport)
{
	struct tcphdr tcp;
	struct flow key;

	if (!flow || bpf_skb_load_bytes(skb, transport, &tcp, sizeof(tcp)))
		return false;
	flow->server_port = tcp.dest;
	flow->client_port = tcp.source;
	key = *flow;
	if (!is_server(&key.server, bpf_ntohs(tcp.dest)))
		return false;
	if (bpf_map_lookup_elem(&clear_flows, &key))
		return true;
	return tcp.syn && !tcp.ack && !tcp.rst && !tcp.fin && is_free(skb, &key);
}

/*
 * to_netdev: whether the packet between these ends belongs to such a connection. It is called for
 * packets that are not silent too: a branch around the call would double all that the verifier has
 * to follow after it.
 */
__noinline bool leaves_in_clear(struct __sk_buff *skb, const struct pair *ends, __u32 transport,
				bool silent)
{
	struct tcphdr tcp;
	struct flow key;

	if (!silent || !ends || bpf_skb_load_bytes(skb, transport, &tcp, sizeof(tcp)))
		return false;
	key.server = ends->src;
	key.client = ends->dst;
	key.server_port = tcp.source;
	key.client_port = tcp.dest;
	return bpf_map_lookup_elem(&clear_flows, &key) != NULL;
}

/* from_tunnel: what came encrypted is answered so. Returns whether there was such a connection. */
__noinline bool forget_flow(struct __sk_buff *skb, const struct flow *flow, __u32 transport)
{
	struct tcphdr tcp;
	struct flow key;

	if (!flow || bpf_skb_load_bytes(skb, transport, &tcp, sizeof(tcp)))
		return false;
	key = *flow;
	key.server_port = tcp.dest;
	key.client_port = tcp.source;
	return bpf_map_delete_elem(&clear_flows, &key) == 0;
}

static __always_inline void remember_flow(const struct flow *flow)
{
	__u64 now = bpf_ktime_get_ns();

	bpf_map_update_elem(&clear_flows, flow, &now, BPF_ANY);
}
