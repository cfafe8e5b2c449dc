// Package e2e runs whole clusters in the laboratory: the built warren binary, real agents, traffic, and
// a capture on the wire. Each test has a lab of its own, named after the process, and leaves nothing
// behind. WARREN_BINARY names a binary to test instead of building one.
//
//	go test ./test/e2e -run TestMatrix
package e2e
