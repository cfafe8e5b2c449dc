package netdev

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// program is a BPF program of two instructions, "return verdict", made by the bare system call: the
// library for BPF belongs to package datapath.
type program struct {
	fd int
	id uint32
}

// bpfLoad and bpfInfo are the parts of union bpf_attr (linux/bpf.h) for BPF_PROG_LOAD and
// BPF_OBJ_GET_INFO_BY_FD that are used here; the kernel takes the rest for zero.
type bpfLoad struct {
	kind         uint32
	instructions uint32
	code         uint64
	license      uint64
}

type bpfInfo struct {
	fd     uint32
	length uint32
	info   uint64
}

func loadProgram(t *testing.T, verdict int32) program {
	t.Helper()
	code := make([]byte, 16)
	code[0] = 0xb7 // BPF_ALU64 | BPF_MOV | BPF_K: r0 = verdict
	binary.NativeEndian.PutUint32(code[4:], uint32(verdict))
	code[8] = 0x95 // BPF_JMP | BPF_EXIT
	license := []byte("GPL\x00")
	load := bpfLoad{
		kind:         unix.BPF_PROG_TYPE_SCHED_CLS,
		instructions: uint32(len(code) / 8),
		code:         uint64(uintptr(unsafe.Pointer(&code[0]))),
		license:      uint64(uintptr(unsafe.Pointer(&license[0]))),
	}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&load)), unsafe.Sizeof(load))
	if errno != 0 {
		unprivileged(t, "load a BPF program", errno)
	}
	t.Cleanup(func() { unix.Close(int(fd)) })
	return program{fd: int(fd), id: programID(t, int(fd))}
}

// programID reads the second field of struct bpf_prog_info: type, id.
func programID(t *testing.T, fd int) uint32 {
	t.Helper()
	var info [2]uint32
	request := bpfInfo{fd: uint32(fd), length: uint32(unsafe.Sizeof(info)), info: uint64(uintptr(unsafe.Pointer(&info)))}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_OBJ_GET_INFO_BY_FD, uintptr(unsafe.Pointer(&request)), unsafe.Sizeof(request))
	if errno != 0 {
		t.Fatalf("read the program's id: %v", errno)
	}
	return info[1]
}
