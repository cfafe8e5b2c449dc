// Package agent wires the drivers together: events become facts, facts a plan, the plan operations.
// It is the only place where goroutines start and where drivers meet.
//
// One goroutine, the loop, owns all state. News (records, links, timers, questions) reaches it by
// channels; it works in rounds:
//
//	links → underlay, own addresses → device → datapath programs → peers and entries → own record
//
// A round that fails is repeated with growing pauses, from a fresh reading of what is actual; a round
// over everything runs at every resync, so that drift is mended. Ending the agent ends nothing else:
// programs, maps, device and tunnel process stay, and the next agent adopts them.
package agent
