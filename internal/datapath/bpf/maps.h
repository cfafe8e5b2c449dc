/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Everything that the programs share with the loader and that outlives both. The sizes and offsets
 * are those of the Go side (layout.go), and a test compares the two. Change one of these structs,
 * or a number in reason.h, and LayoutVersion there has to change with it. A flag or a map more
 * needs none: older programs pass over it.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "reason.h"

/* An IPv6 address, or an IPv4 address as ::ffff:a.b.c.d; network byte order. */
struct address {
	__be32 word[4];
};
_Static_assert(sizeof(struct address) == 16, "struct address");

struct prefix_key {
	__u32 prefixlen; /* 96 + n for IPv4 */
	struct address address;
};
_Static_assert(sizeof(struct prefix_key) == 20, "struct prefix_key");

enum entry_flag {
	ENTRY_NODE = 1,	    /* belongs to a machine itself */
	ENTRY_LOCAL = 2,    /* belongs to this node, or lives behind it */
	ENTRY_HAS_PAIR = 4, /* endpoint and key are an opinion */
	ENTRY_SEND = 8,	    /* the peer is known to decrypt */
	ENTRY_ENFORCE = 16, /* the peer is known to encrypt */
	ENTRY_SLOT = 96,    /* device that encrypts for the peer, shifted by ENTRY_SLOT_SHIFT */
	ENTRY_SILENT = 128, /* a machine that used to answer through the tunnel, and does not */
};
#define ENTRY_SLOT_SHIFT 5

struct entry {
	__u32 identity;
	__u32 underlay; /* ifindex by which the endpoint is reached, 0: the primary one */
	struct address endpoint;
	__u8 key;
	__u8 flags; /* enum entry_flag */
	__u16 mtu;  /* largest packet that the tunnel carries whole to the endpoint, 0: inner_mtu */
	__u32 check; /* entry_check(), in ipcache_exact */
} __attribute__((aligned(8)));
_Static_assert(sizeof(struct entry) == 32, "struct entry");
_Static_assert(offsetof(struct entry, key) == 24, "struct entry");
_Static_assert(offsetof(struct entry, check) == 28, "struct entry");

/*
 * The lock is what makes the kernel change an entry in place (BPF_F_LOCK); see lookup_exact(). The
 * programs never take it: all processors send to the same few peers.
 */
struct exact_entry {
	struct entry entry;
	struct bpf_spin_lock lock;
	__u32 pad;
};
_Static_assert(sizeof(struct exact_entry) == 40, "struct exact_entry");

struct underlay {
	__u8 mac[6];
	__u8 l3; /* nonzero: no link layer header */
	__u8 pad;
};
_Static_assert(sizeof(struct underlay) == 8, "struct underlay");

struct counter {
	__u64 packets;
	__u64 bytes;
};
_Static_assert(sizeof(struct counter) == 16, "struct counter");

struct peer_reason {
	struct address endpoint; /* zero when the entry has no pair */
	__u8 program;
	__u8 reason;
	__u8 pad[6];
};
_Static_assert(sizeof(struct peer_reason) == 24, "struct peer_reason");

struct datagram {
	struct address src;
	struct address dst;
	__u32 id; /* of its fragments, network byte order */
};
_Static_assert(sizeof(struct datagram) == 36, "struct datagram");

/*
 * Their maps have room for twice as many, since new ones are written before old ones are removed.
 */
#define MAX_SERVERS    1024
#define MAX_EXEMPTIONS 64

/* A port that a node needs before it is confirmed. */
struct server {
	struct address address;
	__be16 port;
	__u8 pad[2];
};
_Static_assert(sizeof(struct server) == 20, "struct server");

struct exemption {
	__u8 protocol; /* 0: every one */
	__u8 pad;
	__u16 port; /* host byte order, 0: every one */
};
_Static_assert(sizeof(struct exemption) == 4, "struct exemption");

/* What is exempt of the packets from or to a prefix, with what is of the prefixes around it. */
struct exemptions {
	__u32 count;
	struct exemption list[MAX_EXEMPTIONS];
};
_Static_assert(sizeof(struct exemptions) == 4 + 4 * MAX_EXEMPTIONS, "struct exemptions");

/* Who sends and who receives. */
struct pair {
	struct address src;
	struct address dst;
};
_Static_assert(sizeof(struct pair) == 32, "struct pair");

/* A TCP connection with a server of this node. */
struct flow {
	struct address server;
	struct address client;
	__be16 server_port;
	__be16 client_port;
};
_Static_assert(sizeof(struct flow) == 36, "struct flow");

struct path_fragment {
	__u64 at;   /* bpf_ktime_get_ns() */
	__u32 size; /* bytes, with the IP header */
	__u32 pad;
};
_Static_assert(sizeof(struct path_fragment) == 16, "struct path_fragment");

/* A probe of a peer that came through the tunnel, as the agent reads it. */
struct arrival {
	__u64 at;     /* bpf_ktime_get_ns() */
	__u32 len;    /* of the whole IP packet */
	__u32 copied; /* of data */
	__u8 data[128];
};
_Static_assert(sizeof(struct arrival) == 144, "struct arrival");

/* Single addresses, /32 and /128. Memory is taken as entries come; the loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct address);
	__type(value, struct exact_entry);
} ipcache_exact SEC(".maps");

/* Everything shorter. The loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct prefix_key);
	__type(value, struct entry);
} ipcache_prefix SEC(".maps");

/* The devices that the cluster's packets come and go by, keyed by ifindex. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, struct underlay);
} underlays SEC(".maps");

/* API servers and etcd, which a node of a strict cluster talks to before it is confirmed. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * MAX_SERVERS);
	__type(key, struct server);
	__type(value, __u32);
} servers SEC(".maps");

/* What passes in clear. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2 * MAX_EXEMPTIONS);
	__type(key, struct prefix_key);
	__type(value, struct exemptions);
} exempt_prefixes SEC(".maps");

/* Every way out of every program: index program * REASON_MAX + reason. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PROGRAM_MAX *REASON_MAX);
	__type(key, __u32);
	__type(value, struct counter);
} reasons SEC(".maps");

/* The ways out that an operator wants to see by peer (reason_names_peer). */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_PERCPU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct peer_reason);
	__type(value, struct counter);
} peer_reasons SEC(".maps");

/* When the first fragment of an own WireGuard datagram left (bpf_ktime_get_ns). */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct datagram);
	__type(value, __u64);
} own_datagrams SEC(".maps");

/* When a sender was last told that its packets to a receiver are too large (bpf_ktime_get_ns). */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct pair);
	__type(value, __u64);
} told SEC(".maps");

/* Connections that a silent peer began in clear, and when it was last heard on it
 * (bpf_ktime_get_ns). */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct flow);
	__type(value, __u64);
} clear_flows SEC(".maps");

/*
 * The last first fragment of a WireGuard datagram from each peer, by its address. A router that
 * cuts makes the first fragment as large as its link allows.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct address);
	__type(value, struct path_fragment);
} path_fragments SEC(".maps");

/* Each a struct arrival. What does not fit, because nobody reads, is lost. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} arrivals SEC(".maps");

/* What the fields that decide have to be for this address. */
static __always_inline __u32 entry_check(const struct address *address, const struct entry *entry)
{
	__u32 sum = address->word[0];

	sum = sum * 0x9e3779b1 + address->word[1];
	sum = sum * 0x9e3779b1 + address->word[2];
	sum = sum * 0x9e3779b1 + address->word[3];
	return sum * 0x9e3779b1 + ((__u32)entry->mtu << 16 | entry->flags << 8 | entry->key);
}

#define EXACT_ATTEMPTS 4

/*
 * Copy the entry of the very address.
 *
 * The kernel's hash does not wait for readers. Memory of an element that was replaced or removed
 * is given to the next one at once: what a program has found turns into the entry of another
 * address below its hands, and a walk may miss a third one. So no element is ever replaced: the
 * loader changes entries in place, and an address that is in the map all the while is always found.
 * What remains is an entry that is being changed, and one that is being removed; the
 * check tells both. A trie waits for its readers (RCU) and needs none of this.
 */
static __always_inline bool lookup_exact(const struct address *address, struct entry *found)
{
	const struct exact_entry *exact;
	__u64 word;
	int i;

	for (i = 0; i < EXACT_ATTEMPTS; i++) {
		exact = bpf_map_lookup_elem(&ipcache_exact, address);
		if (!exact)
			return false;
		*found = exact->entry;
		/* Key, flags, size and check: once, and not again later. */
		word = *(const volatile __u64 *)&exact->entry.key;
		__builtin_memcpy(&found->key, &word, sizeof(word));
		if (found->check == entry_check(address, found))
			break;
	}
	return true;
}

/* Copy the entry of an address, its own or else that of the longest prefix; NULL: it is unknown. */
static __always_inline const struct entry *lookup_entry(const struct address *address,
							struct entry *found)
{
	struct prefix_key key = {.prefixlen = 128, .address = *address};
	const struct entry *entry;

	if (lookup_exact(address, found))
		return found;
	entry = bpf_map_lookup_elem(&ipcache_prefix, &key);
	if (entry) {
		*found = *entry;
		return found;
	}
	/* What covers it may have gone from one map to the other between the two lookups. */
	return lookup_exact(address, found) ? found : NULL;
}

static __always_inline bool is_server(const struct address *address, __u16 port)
{
	struct server key = {.address = *address, .port = bpf_htons(port)};

	return bpf_map_lookup_elem(&servers, &key) != NULL;
}

/* Count one packet (a GSO packet is one) that leaves the program for this reason. */
static __always_inline void count(enum program program, enum reason reason, __u32 bytes)
{
	__u32 index = program * REASON_MAX + reason;
	struct counter *counter = bpf_map_lookup_elem(&reasons, &index);

	if (!counter)
		return;
	counter->packets++;
	counter->bytes += bytes;
}

/* The same by peer, for the reasons that are worth it. */
static __always_inline void count_peer(enum program program, enum reason reason,
				       const struct entry *peer, __u32 bytes)
{
	struct peer_reason key = {.program = program, .reason = reason};
	struct counter first = {.packets = 1, .bytes = bytes};
	struct counter *counter;

	if (!peer || !reason_names_peer(reason))
		return;
	if (peer->flags & ENTRY_HAS_PAIR)
		key.endpoint = peer->endpoint;
	counter = bpf_map_lookup_elem(&peer_reasons, &key);
	if (!counter) {
		bpf_map_update_elem(&peer_reasons, &key, &first, BPF_ANY);
		return;
	}
	counter->packets++;
	counter->bytes += bytes;
}
