package netns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// View is what a process sees of the machine from inside a namespace: the network of the namespace,
// a /sys to go with it, and some folders put over others. All of it is the process's (and its
// children's) own; nobody else sees the mounts.
type View struct {
	Namespace string
	// Binds are applied in order; a target that does not exist is skipped.
	Binds []Bind
}

// Bind puts the folder Source over Target.
type Bind struct{ Source, Target string }

// Start starts a command inside the view. The caller owns the process, which can be found by its command line from now on.
func (v View) Start(command *exec.Cmd) error {
	err := onThread(func() error {
		if err := v.enter(); err != nil {
			return err
		}
		return command.Start() // forks from this thread, so the child is inside from its first instruction
	})
	if err == nil {
		poll(context.Background(), nameTime, func() bool { return named(command.Process.Pid) })
	}
	return err
}

// nameTime is how long a new process may take to get its command line; it needs a processor for that, and nothing else.
const nameTime = 5 * time.Second

// named reports whether a process has its command line, or never will since it has ended. execve(2) closes the descriptor
// by which Start knows of it (begin_new_exec in fs/exec.c) before it sets the command line (create_elf_tables).
func named(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(line) > 0 {
		return true
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.Contains(status, []byte(") Z ")) // proc_pid_stat(5): name and state
}

// Exec replaces the calling process by a command inside the view, as execve(2) does: standard
// streams, signals and the exit code are the command's own. It returns only on error.
func (v View) Exec(path string, args, env []string) error {
	runtime.LockOSThread()
	if err := v.enter(); err != nil {
		return err
	}
	if err := syscall.Exec(path, args, env); err != nil {
		return fmt.Errorf("execute %s: %w", path, err)
	}
	return nil
}

// enter moves the calling thread into the view, for good.
func (v View) enter() error {
	if err := join(v.Namespace); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	// Slave: what the machine unmounts later goes here too, nothing from here shows outside.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("detach the mount namespace: %w", err)
	}
	// /sys shows the network of whoever mounted it.
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mount /sys of namespace %s: %w", v.Namespace, err)
	}
	for _, bind := range v.Binds {
		if err := bind.mount(); err != nil {
			return err
		}
	}
	return nil
}

func (b Bind) mount() error {
	if _, err := os.Stat(b.Target); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := unix.Mount(b.Source, b.Target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s over %s: %w", b.Source, b.Target, err)
	}
	return nil
}
