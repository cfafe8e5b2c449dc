package clock

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a process may take to stand still, and to leave the code that is to be replaced.
const patience = 10 * time.Second

// clockGettime returns the address of the process's __vdso_clock_gettime, which must have so many bytes.
func clockGettime(pid int, memory *os.File, size int) (uint64, error) {
	base, image, err := vdso(pid, memory)
	if err != nil {
		return 0, err
	}
	object, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, fmt.Errorf("parse the vDSO: %w", err)
	}
	symbols, err := object.DynamicSymbols()
	if err != nil {
		return 0, fmt.Errorf("read the symbols of the vDSO: %w", err)
	}
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == "__vdso_clock_gettime" })
	if i < 0 || symbols[i].Size < uint64(size) {
		return 0, fmt.Errorf("the vDSO has no __vdso_clock_gettime of %d bytes", size)
	}
	return base + symbols[i].Value, nil
}

// vdso returns where the process has its vDSO, and what is there.
func vdso(pid int, memory *os.File) (base uint64, image []byte, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, nil, err
	}
	for line := range strings.Lines(string(maps)) {
		var limit uint64
		if !strings.HasSuffix(line, "[vdso]\n") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x ", &base, &limit); err != nil {
			return 0, nil, fmt.Errorf("parse %q of its maps: %w", line, err)
		}
		image = make([]byte, limit-base)
		if _, err := memory.ReadAt(image, int64(base)); err != nil {
			return 0, nil, fmt.Errorf("read the vDSO: %w", err)
		}
		return base, image, nil
	}
	return 0, nil, errors.New("it has no vDSO")
}

// whileStopped stops a process, does something, and lets it go on.
func whileStopped(pid int, do func() (bool, error)) (done bool, err error) {
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		return false, fmt.Errorf("stop it: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Kill(pid, unix.SIGCONT)) }()
	for deadline := time.Now().Add(patience); ; {
		stopped, err := allStopped(pid)
		if err != nil {
			return false, err
		}
		if stopped {
			return do()
		}
		if time.Now().After(deadline) {
			return false, fmt.Errorf("stop it: some thread still runs after %v", patience)
		}
	}
}

// allStopped reports whether all threads stand still (proc_pid_stat(5)).
func allStopped(pid int) (bool, error) {
	return allThreads(pid, "stat", func(text string) (bool, error) {
		_, state, _ := strings.Cut(text[strings.LastIndexByte(text, ')')+1:], " ")
		return strings.HasPrefix(state, "T"), nil
	})
}

// noThreadIn reports whether no thread's program counter is from first to limit (proc_pid_syscall(5): the last field).
func noThreadIn(pid int, first, limit uint64) (bool, error) {
	return allThreads(pid, "syscall", func(text string) (bool, error) {
		fields := strings.Fields(text)
		counter, err := strconv.ParseUint(fields[len(fields)-1], 0, 64)
		if err != nil {
			return false, fmt.Errorf("parse %q: %w", text, err)
		}
		return counter < first || counter >= limit, nil
	})
}

// allThreads reports whether that holds for the text in a file of every thread of a process.
func allThreads(pid int, file string, holds func(text string) (bool, error)) (bool, error) {
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/%s", pid, file))
	if err != nil || len(paths) == 0 {
		return false, fmt.Errorf("look at its threads: %w", errors.Join(err, unix.ESRCH))
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			return false, err
		}
		if yes, err := holds(string(text)); !yes || err != nil {
			return false, err
		}
	}
	return true, nil
}
