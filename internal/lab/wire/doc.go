// Package wire captures what crosses the switch of a lab, and reads and judges each frame. Decode and
// Judge are pure; only Capture does I/O. It knows nothing of rows or tests: package proof counts.
//
//	capture, err := wire.Listen(namespace, bridges, wire.Options{…})
//	…traffic…
//	frames, err := capture.Close() // ErrDropped when the kernel lost one: then nothing is proved
package wire
