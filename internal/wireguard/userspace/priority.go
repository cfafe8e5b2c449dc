package userspace

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// niceness of a tunnel process, as nice(2) counts. All packets of the node go through it: where every processor is
// busy, it must not wait for its turn like any other process, or the queue before it runs over. WireGuard in the kernel
// works in softirqs and has no such trouble.
const niceness = -10

// Prefer gives all threads of a process that leads a session that niceness, and the session, too, which is what counts
// between sessions (autogroup, sched(7)). In a control group of its own only the group's weight counts. Error: EACCES or
// EPERM without CAP_SYS_NICE.
func Prefer(pid int) error {
	err := unix.Setpriority(unix.PRIO_PGRP, pid, niceness)
	group := os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte(strconv.Itoa(niceness)), 0)
	if errors.Is(group, os.ErrNotExist) { // a kernel without them
		group = nil
	}
	return errors.Join(err, group)
}
