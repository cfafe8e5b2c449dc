package netns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Dir is where iproute2 keeps named network namespaces.
const Dir = "/run/netns"

// Path returns the file that a namespace is mounted on.
func Path(name string) string { return filepath.Join(Dir, name) }

// Create makes namespaces with `ip netns add`, all in one run.
func Create(ctx context.Context, names ...string) error {
	lines := make([]string, 0, len(names))
	for _, name := range names {
		lines = append(lines, "netns add "+name)
	}
	return Batch(ctx, Script{Tool: "ip", Lines: lines})
}

// Delete removes a namespace and whatever a half-made one left. That there is none is not an error.
// The namespace itself lives on until the last process in it ends.
func Delete(name string) error {
	path := Path(name)
	// EINVAL: the file is there and nothing is mounted on it, as after an interrupted `ip netns add`.
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount namespace %s: %w", name, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove namespace %s: %w", name, err)
	}
	return nil
}

// List returns the names of all namespaces, sorted, half-made ones included.
func List() ([]string, error) {
	entries, err := os.ReadDir(Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list network namespaces: %w", err)
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, nil
}

// Set writes kernel settings as seen from inside a namespace: the keys are paths below
// /proc/sys/net, which shows each thread the settings of its own namespace.
func Set(name string, settings []Setting) error {
	return Do(name, func() error {
		for _, setting := range settings {
			if err := setting.write(); err != nil {
				return fmt.Errorf("set %s in namespace %s: %w", setting.Key, name, err)
			}
		}
		return nil
	})
}

// Setting is one kernel setting of a network namespace.
type Setting struct {
	// Key is a path below /proc/sys/net, "ipv4/ip_forward".
	Key string
	// Value as it is written.
	Value string
	// Optional says that a kernel without this key is fine: the key belongs to a module that may
	// not be there.
	Optional bool
}

func (s Setting) write() error {
	err := os.WriteFile("/proc/sys/net/"+s.Key, []byte(s.Value), 0)
	if s.Optional && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Get reads one kernel setting as seen from inside a namespace.
func Get(name, key string) (string, error) {
	var value string
	err := Do(name, func() error {
		text, err := os.ReadFile("/proc/sys/net/" + key)
		value = strings.TrimSpace(string(text))
		return err
	})
	return value, err
}
