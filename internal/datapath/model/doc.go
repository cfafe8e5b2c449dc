// Package model is the datapath in plain Go: what the eBPF programs in internal/datapath/bpf do with a
// packet, and why. It documents them, answers "warren explain", and random packets hold the loaded
// programs against it. It owns the reasons and their texts; it does no I/O and never sees a map of
// the kernel.
//
//	result := model.ToNetdev(frame, model.Meta{Mark: 0x10}, config, model.World{Lookup: lookup})
//	fmt.Println(result.Verdict, result.Reason, result.Reason.Description())
//
// # Egress of an underlay device (to_netdev)
//
// The first row that applies decides. "strict" and "observe" are modes; what is not said for a mode
// holds in all of them.
//
//	packet                                     reason                verdict
//	not IPv4 or IPv6 (ARP …)                   not_ip                pass
//	more than two VLAN tags in the payload     vlan_too_deep         pass; strict: drop
//	IP header cut short or wrong               malformed             drop; observe: pass (would_drop)
//	own WireGuard packet (see below)           encrypted             pass
//	ICMPv6 133…137, hop limit 255, whole       neighbour_discovery   pass
//	destination unknown                        not_cluster           pass
//	destination is this node's                 local_destination     pass
//	exempt (see Exemption)                     exempt                pass
//	destination has no (endpoint, key) pair    no_pair               pass; strict: drop, unless bootstrap
//	destination has key 0                      key_zero              pass
//	source is not this node's                  source_not_allowed    pass; strict: drop
//	observe mode                               would_redirect        pass
//	destination is not confirmed (no Send)     not_confirmed         pass; strict: drop, unless bootstrap
//	answer to a silent peer, in clear          bootstrap             pass
//	there is no WireGuard device               no_tunnel             pass; strict: drop
//	all others                                 redirected, recut     to the WireGuard device
//	                                           or oversize
//
// An own WireGuard packet has the mark (value under mask), comes from an address of this very machine
// (not of a pod), and is UDP from Warren's port whose payload begins as every WireGuard message
// does: type 1 to 4 and three zero bytes. A later fragment shows no port. It is own when the first
// fragment of the same datagram was, less than a second ago. The mark alone proves nothing: any
// process that may set it would escape. (An engine that obfuscates the first bytes would need that check
// relaxed; neither kernel nor userspace WireGuard does.)
//
// The bootstrap exception is for strict mode only: whole TCP of this node to the address and port of a server
// (World.Servers: API servers, etcd), or from that of a server of its own, passes as "bootstrap" while
// the destination is not confirmed. Without it a node could never learn the keys that it is to be
// confirmed with. It closes by itself: once the entry has Send, all of that is encrypted.
//
// A silent peer (Silent) is confirmed and does not answer any more. It may be off, cut off, or without its disk: then it
// has another key, which this node can learn only if the peer reaches an API server, perhaps the one on this node.
// Silence never ends encryption, since whoever can drop packets can make it. So in strict and permissive mode this node
// answers in clear on TCP connections that
//
//   - the peer began in clear while it was silent, by a SYN,
//   - to the address and port of a server (World.Servers) on which this very machine listens,
//   - while this machine had no connection between these two ends (World.Free), whatever form its packets have,
//   - and of which no packet came through the tunnel since.
//
// All else to a silent peer is encrypted as before: a connection that was encrypted never turns to clear text, and this
// node begins none in clear. Who silences a peer and forges its address gets what any address outside the cluster has, a
// connection to the API server, and from a live peer nothing that it did not get encrypted. The exception ends with the
// first answer: connections go on, encrypted. When a peer falls silent again it begins without any (Datapath.Apply).
//
// What goes to the WireGuard device is made to fit, where that can be done without anybody noticing, when
// Config.TunnelMTU of the destination says what fits:
//
//	a SYN or SYN-ACK                           its segment size is lowered, never raised
//	fits                                       redirected
//	TCP that the kernel has yet to cut (GSO)   recut: into smaller segments, of the same bytes
//	of a pod, not to be fragmented (below)     auto: too_big_told; icmp: too_big_refused
//	all others                                 oversize: the encrypted packet leaves in fragments
//
// A segment size is not touched behind an AH, whose sum covers it. What comes out of the WireGuard device is
// clamped as well, to what the tunnel carries to the source: the peer does not know how large this node's packets
// may be.
//
// A pod is told by an ICMP error as a router in front of a narrower link would send it. With
// OversizeAuto the packet is sent all the same, and nothing is lost. The error has the packet's
// destination as its source, since the route to that leads by the very device that the packet was about
// to leave by: strict reverse-path filters let it in there, dressed as what is handed back. Told are
// sources that are this node's but not its own addresses, whose packet may not be fragmented (IPv4 with DF,
// IPv6), that is no later fragment and no ICMP error itself, and did not go to many. Nobody is told
// less than every host takes: 576 bytes in IPv4, 1280 in IPv6. Source and destination are told once in 100
// ms; between, the packet is as any other.
//
// # Ingress of an underlay device (from_netdev)
//
// The rule mirrors the one above at the sender: what that one would have encrypted must not come in clear,
// and what it may send in clear must come in. Every packet passes, but for those that strict mode drops.
//
//	packet                                     reason                strict
//	has the mark                               handed_back, and the mark is cleared
//	more than two VLAN tags in the payload     vlan_too_deep         drop
//	not readable                               not_ip, malformed
//	ICMPv6 133…137, hop limit 255, whole       neighbour_discovery
//	UDP to Warren's port, like WireGuard, and  encrypted_in
//	  not known to be for a pod
//	source or destination unknown              not_cluster
//	source is this node's                      local_source
//	exempt (see Exemption)                     exempt
//	later UDP fragment from a machine          udp_fragment_in
//	source has no pair                         no_pair               drop, unless bootstrap
//	source or destination has key 0            key_zero
//	bootstrap, of a source not confirmed       bootstrap
//	of a silent peer, to a server of this node bootstrap
//	all others                                 clear_from_peer       drop, if it is to be refused (Enforce)
//
// A later fragment shows no port, and may be one of WireGuard's. It passes, and lets nothing in: a datagram
// needs its first fragment, which holds the ports, and of those only WireGuard's pass. What is put together
// from such a one and from forged later ones is refused by WireGuard itself. That needs no memory of
// first fragments, which may come late.
//
// A source that WireGuard cannot carry (an external client's, forwarded by a peer) is unknown here as
// well: not_cluster.
//
// # Ingress of the WireGuard device (from_tunnel)
//
//	configuration                              reason           verdict
//	not readable                               not_ip, malformed   pass: the IP layer drops it
//	source and destination in ProbePrefix      probe            drop, after the agent got a copy
//	ingress: device                            left_on_device   pass
//	no underlay device is known                no_underlay      pass
//	all others                                 decrypted        hand back to the ingress of the underlay
//	                                                            device of the source's entry, or else
//	                                                            of the primary one
package model
