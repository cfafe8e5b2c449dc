package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// groupsDir is where the control groups of the machine are: one hierarchy (version 2), or a folder for each (version 1).
const groupsDir = "/sys/fs/cgroup"

// hierarchies returns the folders at which hierarchies of control groups are mounted.
func hierarchies() ([]string, error) {
	if _, err := os.Stat(filepath.Join(groupsDir, "cgroup.procs")); err == nil {
		return []string{groupsDir}, nil
	}
	found, err := filepath.Glob(filepath.Join(groupsDir, "*", "cgroup.procs"))
	var dirs []string
	for _, path := range found {
		dirs = append(dirs, filepath.Dir(path))
	}
	return dirs, err
}

// makeGroups makes a control group of a name in every hierarchy, with what groups below it need to be of use.
func makeGroups(name string) error {
	dirs, err := hierarchies()
	if err != nil {
		return fmt.Errorf("find the hierarchies of control groups: %w", err)
	}
	for _, dir := range dirs {
		group := filepath.Join(dir, name)
		if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make the control group %s: %w", name, err)
		}
		if err := equip(dir, group); err != nil {
			return fmt.Errorf("equip the control group %s: %w", group, err)
		}
	}
	return nil
}

// equip gives a group its parent's processors, without which it can have no process (version 1), or hands the parent's
// controllers on (version 2).
func equip(parent, group string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		text, err := os.ReadFile(filepath.Join(parent, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(group, file), text, 0)
		}
		if err != nil {
			return err
		}
	}
	if parent != groupsDir {
		return nil // version 1, or what there is of version 2 beside it, which nobody here uses
	}
	controllers, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
	if err != nil {
		return err
	}
	all := "+" + strings.Join(strings.Fields(string(controllers)), " +")
	return errors.Join(
		os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte(all), 0),
		os.WriteFile(filepath.Join(group, "cgroup.subtree_control"), []byte(all), 0))
}

// removeGroups removes the control groups whose names begin so, and those below. The kernel takes a moment to notice
// that the last process of one has ended.
func removeGroups(prefix string) error {
	dirs, err := hierarchies()
	if err != nil {
		return err
	}
	var problems []error
	for _, dir := range dirs {
		found, _ := filepath.Glob(filepath.Join(dir, prefix+"*"))
		for _, group := range found {
			problems = append(problems, removeTree(group))
		}
	}
	return errors.Join(problems...)
}

// removeTree removes a group from the bottom up: rmdir(2) is all that the kernel accepts there.
func removeTree(group string) error {
	var groups []string
	err := filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			groups = append(groups, path)
		}
		return err
	})
	for _, path := range slices.Backward(groups) {
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			if err = os.Remove(path); err == nil || errors.Is(err, fs.ErrNotExist) || time.Now().After(deadline) {
				break
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the control group: %w", err)
		}
	}
	return nil
}
