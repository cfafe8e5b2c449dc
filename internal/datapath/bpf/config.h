/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the programs are told when they are loaded. The loader sets these by name before it loads a
 * program; after that they never change, and the verifier removes the code that they switch off.
 */
#pragma once

#include <linux/types.h>

enum mode {
	MODE_OBSERVE = 0,
	MODE_PERMISSIVE = 1,
	MODE_STRICT = 2,
};

/* What becomes of what the tunnel does not carry whole, is not to be fragmented and comes from a
 * pod. */
enum oversize {
	OVERSIZE_AUTO = 0,     /* sent in fragments, and the pod is told */
	OVERSIZE_FRAGMENT = 1, /* sent in fragments */
	OVERSIZE_ICMP = 2,     /* the pod is told */
};

enum ingress {
	INGRESS_UNDERLAY = 0,
	INGRESS_DEVICE = 1,
};

/* Length of the link layer header of the device: 14 for Ethernet, 0 for a device without (tun,
 * ppp). */
volatile const __u8 link_header_len = 14;

/* One of enum mode. */
volatile const __u8 mode = MODE_OBSERVE;

/* Nonzero: there may be exemptions. */
volatile const __u8 exempting = 0;

/* Where decrypted packets go on: one of enum ingress. */
volatile const __u8 ingress_mode = INGRESS_UNDERLAY;

/* Bits of the packet mark that are Warren's. */
volatile const __u32 mark_mask = 0x10;

/* Their value in a packet that WireGuard has sent, and in one that from_tunnel hands back. */
volatile const __u32 mark_value = 0x10;

/* UDP port of the WireGuard device, host byte order. */
volatile const __u16 wireguard_port = 51880;

/* Index of the WireGuard device, 0 while there is none. */
volatile const __u32 tunnel_ifindex = 0;

/* Index of the underlay device for a source whose entry names none that exists. */
volatile const __u32 primary_underlay = 0;

/* Largest packet, in bytes with the IP header, that the tunnel carries whole to every peer; 0:
 * nobody said. */
volatile const __u16 inner_mtu = 0;

/* One of enum oversize. */
volatile const __u8 oversize = OVERSIZE_AUTO;

/*
 * Nonzero in the copy that BPF_PROG_RUN runs: the verdict is left in skb->cb for whoever asked.
 * In the attached programs it is 0, since skb->cb belongs to all programs of the chain.
 */
volatile const __u8 report_verdict = 0;
