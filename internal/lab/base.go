package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/lab/netns"
)

// BaseDir holds one directory per lab, and goes with the last lab.
const BaseDir = "/run/warren-lab"

// WireGuardDir is where wgctrl and `wg` look for userspace devices. Inside a node the node's own
// directory is mounted over it.
const WireGuardDir = "/var/run/wireguard"

// Errors of naming a lab.
var (
	ErrExists = errors.New("the lab is there already")
	ErrNoLab  = errors.New("no such lab")
	ErrBusy   = errors.New("another command is changing the lab")
)

// Marks in the base directory of what the labs added to the machine for all of them.
const (
	markNetnsDir     = ".made-netns-dir"
	markNetnsMount   = ".made-netns-mount"
	markWireGuardDir = ".made-wireguard-dir"
)

// claim reserves a name by making the lab's directory, and prepares the machine for labs.
func claim(ctx context.Context, name string) error {
	return lockBase(ctx, func() error {
		err := os.Mkdir(labDir(name), 0o700)
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%w: %s; use it, or remove it with '%s'", ErrExists, name, downCommand(name))
		}
		if err != nil {
			return fmt.Errorf("make the lab's directory: %w", err)
		}
		return prepareMachine()
	})
}

// release gives the name back and, with the last lab, removes what labs added to the machine.
func release(ctx context.Context, name string) error {
	if !exists(BaseDir) {
		return nil
	}
	return lockBase(ctx, func() error {
		if err := os.RemoveAll(labDir(name)); err != nil {
			return fmt.Errorf("remove the lab's directory: %w", err)
		}
		others, err := Names()
		if err != nil || len(others) > 0 {
			return err
		}
		return restoreMachine()
	})
}

// prepareMachine notes what is not there yet and will be there because of the labs: the directory of
// named namespaces and the mount that `ip netns add` makes of it, and the mount point for WireGuard
// sockets.
func prepareMachine() error {
	if err := markMissing(markNetnsDir, exists(netns.Dir)); err != nil {
		return err
	}
	mounted, err := isMountPoint(netns.Dir)
	if err != nil {
		return err
	}
	if err := markMissing(markNetnsMount, mounted); err != nil {
		return err
	}
	if err := markMissing(markWireGuardDir, exists(WireGuardDir)); err != nil {
		return err
	}
	if err := os.MkdirAll(WireGuardDir, 0o755); err != nil {
		return fmt.Errorf("make the mount point for WireGuard sockets: %w", err)
	}
	return nil
}

// restoreMachine undoes prepareMachine as far as nobody else uses it by now: unmounting without
// MNT_DETACH and removing a directory both refuse when something is inside.
func restoreMachine() error {
	if marked(markNetnsMount) {
		_ = unix.Unmount(netns.Dir, 0)
	}
	if marked(markNetnsDir) {
		_ = os.Remove(netns.Dir)
	}
	if marked(markWireGuardDir) {
		_ = os.Remove(WireGuardDir)
	}
	if err := os.RemoveAll(BaseDir); err != nil {
		return fmt.Errorf("remove %s: %w", BaseDir, err)
	}
	return nil
}

func markMissing(name string, present bool) error {
	if present {
		return nil
	}
	if err := os.WriteFile(filepath.Join(BaseDir, name), nil, 0o600); err != nil {
		return fmt.Errorf("note what the lab adds to the machine: %w", err)
	}
	return nil
}

func marked(name string) bool { return exists(filepath.Join(BaseDir, name)) }

// Names returns the names of all labs, half-built ones included.
func Names() ([]string, error) {
	entries, err := os.ReadDir(BaseDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list labs: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// lockBase runs f while no other process makes or removes a lab.
func lockBase(ctx context.Context, f func() error) error {
	for {
		if err := os.MkdirAll(BaseDir, 0o700); err != nil {
			return fmt.Errorf("make %s: %w", BaseDir, err)
		}
		unlock, err := lockDir(ctx, BaseDir)
		if errors.Is(err, errVanished) {
			continue // the last lab took the directory along
		}
		if err != nil {
			return err
		}
		defer unlock()
		return f()
	}
}

// errVanished says that a directory was removed while its lock was waited for.
var errVanished = errors.New("the directory was removed")

// lockDir takes the lock of a directory. The kernel gives it back when the process ends, however it ends.
func lockDir(ctx context.Context, dir string) (unlock func(), err error) {
	file, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errVanished
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	for {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("%w (%s is locked)", ErrBusy, dir)
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if !same(file, dir) {
		_ = file.Close()
		return nil, errVanished
	}
	return func() { _ = file.Close() }, nil
}

// same reports whether the open directory is still the one at the path.
func same(file *os.File, path string) bool {
	held, err := file.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && os.SameFile(held, now)
}

func labDir(name string) string { return filepath.Join(BaseDir, name) }

func downCommand(name string) string { return "warren lab down" + nameFlag(name) }

// nameFlag is what selects the lab on a command line.
func nameFlag(name string) string {
	if name == DefaultName {
		return ""
	}
	return " --name " + name
}
