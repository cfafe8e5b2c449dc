package e2e

import (
	"fmt"
	"net"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"warren/internal/lab/netns"
)

// tcxPrograms counts the programs on a device of a node at one side, unix.BPF_TCX_INGRESS or
// unix.BPF_TCX_EGRESS. bpftool before 7.3 does not list them.
func tcxPrograms(t testing.TB, c *testLab, node, device string, side uint32) int {
	t.Helper()
	// The part of `union bpf_attr` that BPF_PROG_QUERY reads (linux/bpf.h).
	var query struct {
		ifindex, attachType, queryFlags, attachFlags uint32
		programs                                     uint64
		count, _                                     uint32
		programFlags, links, linkFlags, revision     uint64
	}
	err := netns.Do(c.node(node).Namespace, func() error {
		link, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		query.ifindex, query.attachType = uint32(link.Index), side
		_, err = bpf(unix.BPF_PROG_QUERY, unsafe.Pointer(&query), unsafe.Sizeof(query))
		return err
	})
	if err != nil {
		t.Fatalf("ask for the programs on %s of %s: %v", device, node, err)
	}
	return int(query.count)
}

// detachLink forces a pinned link off its device, as `bpftool link detach` does.
func detachLink(t *testing.T, pin string) {
	t.Helper()
	path := append([]byte(pin), 0)
	get := struct {
		path        uint64
		fd, options uint32
	}{path: uint64(uintptr(unsafe.Pointer(&path[0])))}
	fd, err := bpf(unix.BPF_OBJ_GET, unsafe.Pointer(&get), unsafe.Sizeof(get))
	if err != nil {
		t.Fatalf("open the link %s: %v", pin, err)
	}
	defer unix.Close(fd)
	detach := struct{ fd uint32 }{uint32(fd)}
	if _, err := bpf(unix.BPF_LINK_DETACH, unsafe.Pointer(&detach), unsafe.Sizeof(detach)); err != nil {
		t.Fatalf("detach the link %s: %v", pin, err)
	}
}

func bpf(command int, attributes unsafe.Pointer, size uintptr) (int, error) {
	result, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(command), uintptr(attributes), size)
	if errno != 0 {
		return -1, fmt.Errorf("bpf command %d: %w", command, errno)
	}
	return int(result), nil
}
