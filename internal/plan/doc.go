// Package plan turns what is known of the cluster into what this node must look like, and that into
// ordered operations for the drivers. It is pure: no I/O, no clock, no goroutine.
//
//	want := plan.Build(input)                // Desired: device, peers, allowed IPs, datapath entries
//	ops := plan.Diff(want, actual)           // what to do, in an order that loses no packet
//
// The drivers apply operations and report what is actual; what failed is still in the next Diff.
package plan
