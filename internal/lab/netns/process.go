package netns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// reapTime is how long a parent may take to notice that its child has ended.
const reapTime = 3 * time.Second

// Processes returns the ids of the processes whose network namespace is one of the named ones.
// Namespaces that do not exist have none. Zombies are in no namespace.
func Processes(names ...string) ([]int, error) {
	inside, err := identities(names)
	if err != nil {
		return nil, err
	}
	return inside.processes()
}

// End ends every process inside the named namespaces: with SIGTERM, and with SIGKILL after the grace
// time. It returns when all are gone, or an error that names those that are not. Zombies do no harm
// and are waited for only a little: their parent may take its time.
func End(ctx context.Context, grace time.Duration, names ...string) error {
	inside, err := identities(names)
	if err != nil {
		return err
	}
	var ended []int
	for _, step := range []struct {
		signal unix.Signal
		wait   time.Duration
	}{{unix.SIGTERM, grace}, {unix.SIGKILL, 5 * time.Second}} {
		pids, err := inside.signal(step.signal)
		if err != nil {
			return err
		}
		ended = append(ended, pids...)
		if inside.empty(ctx, step.wait) {
			poll(ctx, reapTime, func() bool { return !anyLeft(ended) })
			return nil
		}
	}
	pids, err := inside.processes()
	if err == nil && len(pids) > 0 {
		err = fmt.Errorf("end the processes %v: still there after SIGKILL", pids)
	}
	return err
}

// Ending is how one process is ended.
type Ending struct {
	// What it is, for errors: "the agent of n1".
	What string
	// Signal is sent once.
	Signal unix.Signal
	// Wait is how long it may take to end.
	Wait time.Duration
}

// EndFound ends the process that find returns the id of, and returns when find returns another one, or 0 for none.
// That there is none is not an error.
func EndFound(ctx context.Context, find func() (pid int), how Ending) error {
	pid := find()
	if pid == 0 {
		return nil
	}
	if err := unix.Kill(pid, how.Signal); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("send %v to %s: %w", how.Signal, how.What, err)
	}
	ctx, cancel := context.WithTimeout(ctx, how.Wait)
	defer cancel()
	for find() == pid {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of %s, pid %d, after %v: %w", how.What, pid, how.Signal, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// namespaces are the identities of network namespaces.
type namespaces []os.FileInfo

func identities(names []string) (namespaces, error) {
	own, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("look up the own network namespace: %w", err)
	}
	var found namespaces
	for _, name := range names {
		info, err := os.Stat(Path(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look up namespace %s: %w", name, err)
		}
		// A name bound to the caller's own namespace would make every process of the machine
		// one of "its" processes.
		if !os.SameFile(info, own) {
			found = append(found, info)
		}
	}
	return found, nil
}

// processes returns the ids of all processes inside.
func (n namespaces) processes() ([]int, error) {
	if len(n) == 0 {
		return nil, nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil && n.has(pid) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// has reports whether a process lives in one of the namespaces.
func (n namespaces) has(pid int) bool {
	info, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return false // it ended meanwhile
	}
	for _, namespace := range n {
		if os.SameFile(info, namespace) {
			return true
		}
	}
	return false
}

// signal sends a signal to all processes inside. The process file descriptor is opened before the
// membership is checked again, so the signal cannot hit a process that got the same id later.
func (n namespaces) signal(signal unix.Signal) (pids []int, err error) {
	pids, err = n.processes()
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it ended meanwhile
		}
		if n.has(pid) {
			err = unix.PidfdSendSignal(fd, signal, nil, 0)
		}
		_ = unix.Close(fd)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return nil, fmt.Errorf("send %v to process %d: %w", signal, pid, err)
		}
	}
	return pids, nil
}

// empty waits until no process is inside, at most for the given time.
func (n namespaces) empty(ctx context.Context, wait time.Duration) bool {
	return poll(ctx, wait, func() bool {
		pids, err := n.processes()
		return err == nil && len(pids) == 0
	})
}

// anyLeft reports whether one of the processes is still in the table, be it as a zombie.
func anyLeft(pids []int) bool {
	return slices.ContainsFunc(pids, func(pid int) bool {
		_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
		return err == nil
	})
}

// poll asks again and again until the answer is yes or the time is over.
func poll(ctx context.Context, wait time.Duration, done func() bool) bool {
	for deadline := time.Now().Add(wait); !done(); {
		if time.Now().After(deadline) {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return true
}
