package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mountBPF gives a node its own BPF file system, visible to the whole machine: pins in it outlive
// the agent that made them.
func mountBPF(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the node's bpffs directory: %w", err)
	}
	if err := unix.Mount("bpf", dir, "bpf", 0, "mode=0700"); err != nil {
		return fmt.Errorf("mount a BPF file system on %s: %w", dir, err)
	}
	return nil
}

// unmountBelow unmounts everything at and below a directory, innermost first.
func unmountBelow(dir string) error {
	points, err := mountPoints()
	if err != nil {
		return err
	}
	for _, point := range slices.Backward(points) {
		if point != dir && !strings.HasPrefix(point, dir+"/") {
			continue
		}
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
	return nil
}

// mountPoints returns where something is mounted, in the order of mounting.
func mountPoints() ([]string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	return parseMountPoints(string(text)), nil
}

// parseMountPoints reads the fifth field of each line of /proc/self/mountinfo (proc(5)), in which
// blanks and backslashes are octal escapes.
func parseMountPoints(mountinfo string) []string {
	var points []string
	for line := range strings.Lines(mountinfo) {
		if fields := strings.Fields(line); len(fields) > 4 {
			points = append(points, unescapeOctal(fields[4]))
		}
	}
	return points
}

func unescapeOctal(text string) string {
	var plain strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if code, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				plain.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		plain.WriteByte(text[i])
	}
	return plain.String()
}

// isMountPoint reports whether something is mounted right at the path (statx(2), Linux 5.8). The list
// of mounts would also have what another mount hides.
func isMountPoint(path string) (bool, error) {
	var info unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BASIC_STATS, &info)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look whether something is mounted on %s: %w", path, err)
	}
	return info.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
