package clock

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// child makes the test binary a process whose clock is shifted.
const child = "WARREN_CLOCK_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) != "" {
		tell(os.Stdin, os.Stdout)
		return
	}
	os.Exit(m.Run())
}

// tell prints for each line that it reads the time of day, in Unix nanoseconds, and the time since it began, while other
// threads ask for the time all the time.
func tell(questions io.Reader, answers io.Writer) {
	began := time.Now()
	for range 4 {
		go func() {
			for last := began; ; {
				now := time.Now()
				if now.Sub(last) < 0 {
					panic("the monotonic clock went back")
				}
				last = now
			}
		}()
	}
	for lines := bufio.NewScanner(questions); lines.Scan(); {
		now := time.Now()
		fmt.Fprintln(answers, now.UnixNano(), int64(now.Sub(began)))
	}
}

// watched is such a process.
type watched struct {
	*exec.Cmd
	questions io.Writer
	answers   *bufio.Reader
	began     time.Time
}

func start(t *testing.T) *watched {
	t.Helper()
	Need(t)
	if unix.Geteuid() != 0 {
		t.Skip("needs root: writes into another process")
	}
	w := &watched{Cmd: exec.Command(os.Args[0]), began: time.Now()}
	w.Env, w.Stderr = append(os.Environ(), child+"=1"), os.Stderr
	answers, err := w.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	questions, err := w.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	w.questions, w.answers = questions, bufio.NewReader(answers)
	t.Cleanup(func() {
		_ = questions.Close()
		if err := w.Wait(); err != nil {
			t.Errorf("the process: %v", err)
		}
	})
	return w
}

// expect asks the process and holds its time of day and its monotonic clock against the machine's.
func (w *watched) expect(t *testing.T, shift time.Duration) {
	t.Helper()
	before := time.Now()
	fmt.Fprintln(w.questions)
	var nanoseconds, since int64
	if _, err := fmt.Fscanln(w.answers, &nanoseconds, &since); err != nil {
		t.Fatal(err)
	}
	after, got := time.Now(), time.Unix(0, nanoseconds).Add(-shift)
	if got.Before(before.Add(-time.Millisecond)) || got.After(after.Add(time.Millisecond)) {
		t.Errorf("shifted by %v, its clock is off by %v more", shift, got.Sub(before))
	}
	if running := after.Sub(w.began); time.Duration(since) > running || time.Duration(since) < before.Sub(w.began)-startTime {
		t.Errorf("after %v its monotonic clock says %v", running, time.Duration(since))
	}
}

// startTime is what a process may take to start, on a machine that has other things to do.
const startTime = 5 * time.Second

const year = 365 * 24 * time.Hour

// TestShift: the time of day of a process jumps, and its monotonic clock does not.
func TestShift(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.expect(t, 0)
	for _, by := range []time.Duration{10 * time.Second, -10 * time.Second, year, -year, math.MaxInt32 * time.Second, 0} {
		if err := Shift(w.Process.Pid, by); err != nil {
			t.Fatal(err)
		}
		w.expect(t, by)
	}
}

// TestShiftOften: nothing happens to a process whose threads are in the code that changes.
func TestShiftOften(t *testing.T) {
	t.Parallel()
	w := start(t)
	for i := range 1000 {
		by := time.Duration(i%21-10) * time.Second
		if err := Shift(w.Process.Pid, by); err != nil {
			t.Fatal(err)
		}
		if i%50 == 0 {
			w.expect(t, by)
		}
	}
}

// TestShiftRefuses what cannot be done.
func TestShiftRefuses(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		if err := Shift(os.Getpid(), 0); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("on another processor: %v", err)
		}
		return
	}
	for _, test := range []struct {
		name string
		pid  int
		by   time.Duration
		want error
	}{
		{"part of a second", os.Getpid(), 1500 * time.Millisecond, nil},
		{"more than the offset holds", os.Getpid(), (math.MaxInt32 + 1) * time.Second, nil},
		{"no such process", math.MaxInt32, time.Second, os.ErrNotExist},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := Shift(test.pid, test.by); err == nil || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}
