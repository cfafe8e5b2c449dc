package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// boot makes a machine of the namespaces that the process was started in. Its disk is the folder root, Kubernetes is in
// the folder programs, what else it runs and its devices are those of the machine below. It prints "ready" and lives until its standard input ends, so that a node
// ends with whoever started it, however that ended. Everything on the node ends with it (pid_namespaces(7)).
func boot(hostname, root, programs string) error {
	go reap()
	if err := unix.Sethostname([]byte(hostname)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := mountAll(root, append(mounts, mount{source: programs, target: "opt/kube", flags: unix.MS_BIND})); err != nil {
		return err
	}
	if err := enter(root); err != nil {
		return err
	}
	if err := keepSettings(); err != nil {
		return err
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// mount is one file system of a node; target is below its root. The fields are those of mount(2).
type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

// mounts are in order. /sys shows the network of whoever mounts it, so it is a new one, with the control groups of the
// machine below. /run and the BPF file system are empty after every start, as on any machine.
var mounts = []mount{
	{source: "/usr", target: "usr", flags: unix.MS_BIND | unix.MS_REC},
	{source: "/etc/alternatives", target: "etc/alternatives", flags: unix.MS_BIND},
	{source: "/dev", target: "dev", flags: unix.MS_BIND | unix.MS_REC},
	{source: "proc", target: "proc", kind: "proc"},
	{source: "sysfs", target: "sys", kind: "sysfs"},
	{source: "/sys/fs/cgroup", target: "sys/fs/cgroup", flags: unix.MS_BIND | unix.MS_REC},
	{source: "bpf", target: "sys/fs/bpf", kind: "bpf", data: "mode=0700"},
	{source: "tmpfs", target: "run", kind: "tmpfs", data: "mode=0755"},
	{source: "tmpfs", target: "tmp", kind: "tmpfs", data: "mode=1777"},
}

// mountAll mounts everything below the root, and the root itself, which pivot_root(2) wants to be a mount.
func mountAll(root string, mounts []mount) error {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("detach the mounts from the machine's: %w", err)
	}
	if err := unix.Mount(root, root, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount the root %s: %w", root, err)
	}
	if err := layOut(root); err != nil {
		return err
	}
	for _, m := range mounts {
		target := filepath.Join(root, m.target)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return fmt.Errorf("make the mount point %s: %w", m.target, err)
		}
		if err := unix.Mount(m.source, target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s at %s: %w", m.source, m.target, err)
		}
	}
	return nil
}

// links are those of a Debian whose programs are all in /usr; most of /var that is not kept is in /run.
var links = map[string]string{
	"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64",
	"var/run": "/run", "etc/os-release": "../usr/lib/os-release",
}

func layOut(root string) error {
	for _, dir := range []string{"etc", "var/lib", "var/log", "opt"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return fmt.Errorf("lay out the root: %w", err)
		}
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("lay out the root: %w", err)
		}
	}
	return nil
}

// enter makes the folder the root of all and lets go of the machine's. What is mounted later is seen by the containers
// that ask for it, as where systemd is the first process: it makes the root shared.
func enter(root string) error {
	if err := unix.Chdir(root); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	// The old root is on top of the new one (pivot_root(2), NOTES).
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let go of the machine's root: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("share the mounts: %w", err)
	}
	return nil
}

// settings are those of the whole machine that a kubelet wants to be so (its package
// k8s.io/component-helpers/node/util/sysctl), and would set.
var settings = map[string]string{
	"vm/overcommit_memory":     "1",
	"vm/panic_on_oom":          "0",
	"kernel/panic":             "10",
	"kernel/panic_on_oops":     "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// keepSettings shows the node's kubelet files that have the values it wants, and keeps it from the machine's own.
func keepSettings() error {
	for key, value := range settings {
		file := filepath.Join("/run/settings", key)
		err := os.MkdirAll(filepath.Dir(file), 0o755)
		if err == nil {
			err = os.WriteFile(file, []byte(value+"\n"), 0o644)
		}
		if err == nil {
			err = unix.Mount(file, filepath.Join("/proc/sys", key), "", unix.MS_BIND, "")
		}
		if err != nil {
			return fmt.Errorf("show the setting %s: %w", key, err)
		}
	}
	return nil
}
