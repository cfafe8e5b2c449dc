// Package sweep asks which sizes of packet get through a lab, every one of them, and whether the sender is told about
// those that do not. It owns what counts as lost; what the wire carries is the question of package proof, whose rows
// it goes through.
//
//	report, err := sweep.Run(ctx, l, sweep.Options{Sizes: sizes})
//	if !report.OK { … }
package sweep
