// Package arch holds Warren's architecture as tests: which package may import which (the arrows of
// docs/architecture.md), which package is the only door to a library, and what every package owes
// its reader (a comment on each exported name, a name that says what it owns). It has no code of its
// own, reads only source text, and needs no privilege.
//
//	go test ./internal/arch
package arch
