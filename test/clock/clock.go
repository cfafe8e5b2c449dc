// Package clock gives single processes a wrong time of day, for tests of what a clock does that is set or was never right.
// The clock of the machine stays as it is, which time namespaces cannot do either: they shift the other clocks
// (time_namespaces(7)).
//
//	err := clock.Shift(pid, 10*time.Second)  // its clock jumps ahead
//	err = clock.Shift(pid, 0)                // and is put right
package clock

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"testing"
	"time"
)

// code replaces the beginning of __vdso_clock_gettime, which programs in Go ask for the time (vdso(7)). The offset of
// so many seconds is the part that changes. Of the registers it touches those alone that a function may.
//
//	b8 e4 00 00 00     mov  eax, 228            clock_gettime(2)
//	0f 05              syscall
//	85 ff              test edi, edi            CLOCK_REALTIME is 0
//	75 07              jne  +7
//	48 81 06 seconds   add  qword [rsi], seconds
//	c3                 ret
var code = [...]byte{0xb8, 228, 0, 0, 0, 0x0f, 0x05, 0x85, 0xff, 0x75, 7, 0x48, 0x81, 0x06, 0, 0, 0, 0, 0xc3}

// offset and end are where the seconds are in code.
const offset, end = 14, 18

// Need skips the test where Shift does not work.
func Need(t testing.TB) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("clocks of processes are shifted on amd64 only")
	}
}

// Shift makes the time of day of a running process differ from the machine's by so much from now on, in whole seconds,
// up to 68 years. Its CLOCK_MONOTONIC stays as it is, as when a real clock is set. Children have it until they
// execute a program. The process stands still for some milliseconds.
//
// It writes into the process's copy of the vDSO, as a debugger does for a breakpoint, and reaches those who ask the time
// there by clock_gettime: Go's time.Now, whose other functions, time and gettimeofday, it does not use. Times
// of files are the machine's.
//
// errors.ErrUnsupported: the processor is not an amd64.
func Shift(pid int, by time.Duration) error {
	seconds := by / time.Second
	switch {
	case runtime.GOARCH != "amd64":
		return fmt.Errorf("shift the clock of process %d on %s: %w", pid, runtime.GOARCH, errors.ErrUnsupported)
	case by%time.Second != 0 || seconds != time.Duration(int32(seconds)):
		return fmt.Errorf("shift the clock of process %d by %v: not whole seconds, or more than %d", pid, by, math.MaxInt32)
	}
	patch := code
	binary.LittleEndian.PutUint32(patch[offset:], uint32(seconds))
	if err := install(pid, patch[:]); err != nil {
		return fmt.Errorf("shift the clock of process %d by %v: %w", pid, by, err)
	}
	return nil
}

// install puts the patch in place while the process stands still.
func install(pid int, patch []byte) error {
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	at, err := clockGettime(pid, memory, len(patch))
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); ; {
		done, err := whileStopped(pid, func() (bool, error) { return write(pid, memory, at, patch) })
		if done || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("a thread is in __vdso_clock_gettime whenever it is looked at, for %v", patience)
		}
	}
}

// write reports whether it has written the patch. Over another offset it may, wherever the threads are; over other
// code only when none is in it.
func write(pid int, memory *os.File, at uint64, patch []byte) (bool, error) {
	present := make([]byte, len(patch))
	if _, err := memory.ReadAt(present, int64(at)); err != nil {
		return false, fmt.Errorf("read the vDSO: %w", err)
	}
	if !bytes.Equal(present[:offset], code[:offset]) || !bytes.Equal(present[end:], code[end:]) {
		free, err := noThreadIn(pid, at, at+uint64(len(patch)))
		if !free || err != nil {
			return false, err
		}
	}
	if _, err := memory.WriteAt(patch, int64(at)); err != nil {
		return false, fmt.Errorf("write the vDSO: %w", err)
	}
	return true, nil
}
