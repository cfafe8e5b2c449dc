// Package probe knows how a node finds out what its peers can do: it owns the probe's bytes and addresses,
// and for each peer the state that follows from requests and replies – whether this node may encrypt
// towards it, whether clear packets from it are still to be accepted, how far away it is, and how large a
// packet arrives whole.
//
// It is pure: no I/O, no clock, no goroutine. Time is a [time.Duration] since any moment, the same for all
// calls. Whoever drives it sends what Tick returns through the tunnel, hands in what came out of the tunnel,
// and carries out what State says:
//
//	peer := probe.New(now, probe.Options{Mode: probe.Permissive, Seed: random})
//	for _, send := range peer.Tick(now) { // due again at peer.Next()
//		packet, err := probe.Packet(own, probe.Address(key), port, send.Message, send.Size)
//	}
//	source, destination, message, err := probe.Parse(head, length) // out of the tunnel
//	answer := peer.Request(now, message, fragment)                 // if message.Kind is Request
//	peer.Reply(now, message)                                       // if it is Reply
//	state := peer.State(now)                                       // then change the datapath, and say so:
//	peer.Applied(now, probe.Kernel{Sends: state.Send, Enforces: state.Enforce})
//
// A [Schedule] does so for thousands of peers at a bounded rate.
package probe
