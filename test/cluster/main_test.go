package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/lab/control"
	"warren/internal/lab/netns"
)

// runVariable is set for the process that runs the tests; it names the run, and everything of it on the machine.
const runVariable = "WARREN_CLUSTER_RUN"

// TestMain runs the tests in a process of its own and removes what is left of their cluster when that has ended, also
// when it was killed, or ran out of time.
func TestMain(m *testing.M) {
	if os.Getenv(runVariable) != "" || os.Getenv(control.BinariesVariable) == "" || unix.Geteuid() != 0 {
		code := m.Run()
		if err := down(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	}
	code, err := supervise()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// runPrefix and the supervisor's process id are the name of a run.
const runPrefix = "warren-cluster-"

// run is what everything of one run is called after, and where its files are.
type run struct{ name, dir string }

func thisRun() run {
	name := os.Getenv(runVariable)
	return run{name, filepath.Join(os.TempDir(), name)}
}

func supervise() (int, error) {
	name := runPrefix + strconv.Itoa(os.Getpid())
	if err := os.Setenv(runVariable, name); err != nil {
		return 0, err
	}
	r := thisRun()
	if err := errors.Join(sweepOld(), os.Mkdir(r.dir, 0o700)); err != nil {
		return 0, err
	}
	// A signal from the keyboard goes to both processes: the other one ends, and this one removes what is left.
	signal.Ignore(unix.SIGINT, unix.SIGTERM)
	tests := exec.Command(os.Args[0], os.Args[1:]...)
	tests.Stdout, tests.Stderr = os.Stdout, os.Stderr
	err := tests.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), errors.Join(r.sweep(), r.leftovers())
	}
	return 0, errors.Join(err, r.sweep(), r.leftovers()) // not started, or killed
}

// sweepOld removes what is left of runs whose supervisor was killed.
func sweepOld() error {
	old, err := filepath.Glob(filepath.Join(os.TempDir(), runPrefix+"*"))
	if err != nil {
		return err
	}
	var problems []error
	for _, dir := range old {
		name := filepath.Base(dir)
		pid, err := strconv.Atoi(strings.TrimPrefix(name, runPrefix))
		if err == nil && unix.Kill(pid, 0) == unix.ESRCH {
			problems = append(problems, run{name, dir}.sweep())
		}
	}
	return errors.Join(problems...)
}

// sweep removes everything of the run: processes, namespaces, control groups, files.
func (r run) sweep() error {
	all, err := netns.List()
	if err != nil {
		return err
	}
	var own []string
	for _, name := range all {
		if strings.HasPrefix(name, r.name+"-") {
			own = append(own, name)
		}
	}
	problems := []error{netns.End(context.Background(), 5*time.Second, own...)}
	for _, name := range own {
		problems = append(problems, netns.Delete(name))
	}
	problems = append(problems, removeGroups(r.name), os.RemoveAll(r.dir))
	return errors.Join(problems...)
}

// leftovers names what still bears the name of the run. It looks by name only, so that it does not share a mistake
// with sweep.
func (r run) leftovers() error {
	var left []error
	for _, pattern := range []string{"/run/netns/%s*", "/sys/fs/cgroup/%s*", "/sys/fs/cgroup/*/%s*", os.TempDir() + "/%s"} {
		found, _ := filepath.Glob(fmt.Sprintf(pattern, r.name))
		for _, path := range found {
			left = append(left, fmt.Errorf("left behind: %s", path))
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, r.name) {
			left = append(left, fmt.Errorf("left mounted: %s", strings.TrimSpace(line)))
		}
	}
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		if line, _ := os.ReadFile(path); strings.Contains(string(line), r.name) {
			left = append(left, fmt.Errorf("left running: %s: %s", path, strings.ReplaceAll(string(line), "\x00", " ")))
		}
	}
	return errors.Join(left...)
}
