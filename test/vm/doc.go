// Package vm tests Warren on kernels that have WireGuard: Debian's 6.1, which has no TCX, and 6.12,
// in virtual machines under software emulation. `make test-vm` (scripts/test-vm.sh) does all of it.
//
//	scripts/test-vm.sh ─ go test -exec runner ─┬─ runner ─ qemu ┬─ kernel: from a Debian package
//	    for each kernel                        │                └─ guest (PID 1) ─ test program
//	                                           └─ the same for every package
//
// Package job is what runner and guest have to agree on. The tests of the drivers run in the guests
// unchanged; the ones here are of what needs several drivers, or the whole program, on a kernel
// with WireGuard. Outside a guest they are skipped.
package vm
