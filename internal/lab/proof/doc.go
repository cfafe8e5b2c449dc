// Package proof shows what the wire of a lab carries: it sends traffic in every class between every
// pair of nodes, captures at the switch, and counts per row what was delivered and what could be read.
// It owns what counts as proved; making labs and reading frames belongs to packages lab and wire.
//
// A check that cannot fail proves nothing, so Verify first does the same in a lab without encryption,
// where it must see all that it looks for, and frames in clear mark the beginning and end of every
// capture. Where one of these is missing the report is void.
//
//	report, err := proof.Verify(ctx, l, proof.Options{})
//	if !report.OK { … }
package proof
