// Package plan turns what is known of the cluster into what this node must look like, and that into
// ordered operations for the drivers. It is pure: no I/O, no clock, no goroutine.
//
//	world := plan.NewWorld(cluster.SourceDirectory, true)
//	world.Apply(plan.Change{Self: &self}, plan.Change{Upsert: &record})
//	scope := world.Changed()                     // the part of the state that this concerns
//	ops := plan.Diff(world.Want(scope), scope.Of(have), plan.Options{Prune: synced})
//	have.Apply(ops)                              // after the drivers did, in the order of Ops
//
// The drivers apply operations and report what is actual; what failed is still in the next Diff.
package plan
