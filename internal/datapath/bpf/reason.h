/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Code generated from internal/datapath/model/reason.go by make generate; DO NOT EDIT. */
#pragma once

#include <stdbool.h>

/* clang-format off */

enum program {
	PROGRAM_TO_NETDEV = 0,
	PROGRAM_FROM_NETDEV = 1,
	PROGRAM_FROM_TUNNEL = 2,
	PROGRAM_MAX = 3,
};

/* Why a packet left a program as it did. */
enum reason {
	REASON_NONE = 0,
	/* neither IPv4 nor IPv6, such as ARP; passes */
	REASON_NOT_IP = 1,
	/* IP header cut short or wrong, so that nobody can say where it goes; dropped on egress */
	REASON_MALFORMED = 2,
	/* more than two VLAN tags in the payload; passes, in strict mode dropped */
	REASON_VLAN_TOO_DEEP = 3,
	/* sent by this node's WireGuard; passes */
	REASON_ENCRYPTED = 4,
	/* IPv6 neighbour discovery, which stays outside the tunnel; passes */
	REASON_NEIGHBOUR_DISCOVERY = 5,
	/* not between addresses of the cluster; passes */
	REASON_NOT_CLUSTER = 6,
	/* to an address of this node or behind it; passes */
	REASON_LOCAL_DESTINATION = 7,
	/* in the cluster, but nobody said how it is reached; in clear, in strict mode dropped */
	REASON_NO_PAIR = 8,
	/* in the cluster, and configured not to be encrypted; in clear */
	REASON_KEY_ZERO = 9,
	/* to a peer, from an address that is not this node's, which the peer would refuse; in clear, in strict mode dropped */
	REASON_SOURCE_NOT_ALLOWED = 10,
	/* to a peer, while this node has no WireGuard device; in clear, in strict mode dropped */
	REASON_NO_TUNNEL = 11,
	/* to a peer; given to the WireGuard device */
	REASON_REDIRECTED = 12,
	/* observe mode: to a peer, in clear; other modes would encrypt it */
	REASON_WOULD_REDIRECT = 13,
	/* observe mode: malformed, passes; other modes would drop it */
	REASON_WOULD_DROP = 14,
	/* the kernel could not change the packet; dropped on egress, left on the WireGuard device on ingress */
	REASON_HELPER_FAILED = 15,
	/* decrypted before and handed back to this device; passes, its mark is cleared */
	REASON_HANDED_BACK = 16,
	/* a WireGuard message for this node's port; passes */
	REASON_ENCRYPTED_IN = 17,
	/* later fragment of a UDP datagram from a machine of the cluster, which is worth nothing without its first fragment, and that is judged; passes */
	REASON_UDP_FRAGMENT_IN = 18,
	/* claims to come from a peer, in clear, though it should have been encrypted; passes, in strict mode dropped once the peer is known to encrypt */
	REASON_CLEAR_FROM_PEER = 19,
	/* came in with an address of this node or behind it as its source; passes */
	REASON_LOCAL_SOURCE = 20,
	/* decrypted, and handed back to the ingress of the underlay device */
	REASON_DECRYPTED = 21,
	/* decrypted, and left on the WireGuard device as configured */
	REASON_LEFT_ON_DEVICE = 22,
	/* decrypted, and left on the WireGuard device because no underlay device is known */
	REASON_NO_UNDERLAY = 23,
	/* to a peer; TCP segments too large for the tunnel, made smaller and given to the WireGuard device */
	REASON_RECUT = 24,
	/* to a peer; larger than the tunnel carries whole, given to the WireGuard device, which sends it in fragments */
	REASON_OVERSIZE = 25,
	/* from a local pod to a peer; larger than the tunnel carries whole, sent in fragments, and the pod was told by ICMP what fits */
	REASON_TOO_BIG_TOLD = 26,
	/* from a local pod to a peer; larger than the tunnel carries whole, not sent, and the pod was told by ICMP what fits */
	REASON_TOO_BIG_REFUSED = 27,
	/* a probe of a peer that came through the tunnel; handed to the agent */
	REASON_PROBE = 28,
	/* to a peer that has not proved yet that it can decrypt; in clear, in strict mode dropped */
	REASON_NOT_CONFIRMED = 29,
	/* TCP between the port of an API server or etcd and a node that is not confirmed yet (strict mode), or that began it in clear since it answers no more; in clear */
	REASON_BOOTSTRAP = 30,
	/* between addresses of the cluster, and exempted by the configuration; in clear */
	REASON_EXEMPT = 31,
	REASON_MAX = 64, /* room for reasons to come */
};

/* Whether packets that leave for this reason are counted by peer as well. */
static inline __attribute__((always_inline)) bool reason_names_peer(enum reason reason)
{
	switch (reason) {
	case REASON_NO_PAIR:
	case REASON_KEY_ZERO:
	case REASON_SOURCE_NOT_ALLOWED:
	case REASON_NO_TUNNEL:
	case REASON_WOULD_REDIRECT:
	case REASON_HELPER_FAILED:
	case REASON_CLEAR_FROM_PEER:
	case REASON_OVERSIZE:
	case REASON_TOO_BIG_TOLD:
	case REASON_TOO_BIG_REFUSED:
	case REASON_NOT_CONFIRMED:
	case REASON_BOOTSTRAP:
	case REASON_EXEMPT:
		return true;
	default:
		return false;
	}
}

/* clang-format on */
