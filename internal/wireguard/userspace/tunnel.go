package userspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	startTimeout = 10 * time.Second
	startPoll    = 20 * time.Millisecond
	// logTail is how much of the log an error quotes.
	logTail = 1024
)

// TunnelOptions say how a tunnel process is started. All but OnlyLauncher and Timeout are needed.
type TunnelOptions struct {
	// Executable runs Run as `EXECUTABLE tunnel --device DEVICE --mtu MTU --profile FILE` and logs to stderr.
	Executable string
	// Device is the name of the TUN device, at most 15 bytes.
	Device string
	// MTU of the device when it is created, in bytes.
	MTU int
	// RunDir gets the files tunnel-DEVICE.log, .log.old (of the process before), .lock, and .pprof when a
	// profile is asked for. It is created (0700) when it is not there.
	RunDir string
	// OnlyLauncher: Ensure starts no process itself, and fails while there is no launcher.
	OnlyLauncher bool
	// Timeout bounds Ensure; 0 is 10 seconds.
	Timeout time.Duration
}

// Process is a running tunnel.
type Process struct {
	// PID is 0 when the process cannot be seen from this process namespace.
	PID int
	// Adopted: it was running before.
	Adopted bool
}

// Tunnel starts the tunnel process of one device. One goroutine may use it at a time; other agents
// may do the same for the same device.
type Tunnel struct {
	TunnelOptions
	log   *slog.Logger
	child int // process started here and not yet waited for; 0 is none
	last  int // process that the last Ensure found; 0 is none
}

// NewTunnel returns the tunnel of a device. Nothing is started yet.
func NewTunnel(o TunnelOptions, log *slog.Logger) *Tunnel {
	if o.Timeout == 0 {
		o.Timeout = startTimeout
	}
	return &Tunnel{TunnelOptions: o, log: log}
}

// Ensure returns when the tunnel process runs, its device is in this network namespace (that of the
// calling thread) and its socket answers. A process that runs already is adopted. A new one is
// started by the launcher, where one serves the run directory. Otherwise it is started here, unless only the launcher
// may, and gets a session of its own, nothing to read, the log file to write, and no other file, so that it survives
// whatever ends the agent. Its MTU and its age do not matter for adoption.
//
// The error quotes the end of the process's log.
func (t *Tunnel) Ensure(ctx context.Context) (Process, error) {
	process, err := t.ensureLocked(ctx)
	if err != nil {
		return Process{}, fmt.Errorf("run a tunnel process for %s: %w", t.Device, err)
	}
	return process, nil
}

func (t *Tunnel) ensureLocked(ctx context.Context) (Process, error) {
	if err := checkName(t.Device); err != nil {
		return Process{}, err
	}
	if err := os.MkdirAll(t.RunDir, 0o700); err != nil {
		return Process{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	unlock, err := lock(ctx, t.file(".lock"))
	if err != nil {
		return Process{}, err
	}
	defer unlock()
	return t.ensure(ctx, t.ask)
}

// ensure has the process started by start when it does not run.
func (t *Tunnel) ensure(ctx context.Context, start func(context.Context) error) (Process, error) {
	t.reap() // the one before, if it has died
	started := false
	for {
		pid, alive := Find(t.Device)
		switch {
		case alive && linkExists(t.Device):
			return t.found(Process{PID: pid, Adopted: !started}), nil
		case !alive && !started:
			t.lost()
			if err := start(ctx); err != nil {
				return Process{}, err
			}
			started = true
		case started && t.reap():
			return Process{}, fmt.Errorf("it ended at once; its log: %s", t.tail())
		}
		if err := sleep(ctx, startPoll); err == nil {
			continue
		}
		if started {
			t.kill()
			return Process{}, fmt.Errorf("it is not ready: %w; its log: %s", context.Cause(ctx), t.tail())
		}
		return Process{}, fmt.Errorf("process %d serves %s, but no device %s is in this network namespace: %w; "+
			"agents in several network namespaces need a folder of their own mounted at %s",
			pid, socketPath(t.Device), t.Device, context.Cause(ctx), socketDir)
	}
}

// found logs a process that is another than the last time.
func (t *Tunnel) found(process Process) Process {
	if process.PID != t.last {
		t.log.Info("tunnel process runs", "device", t.Device, "pid", process.PID, "adopted", process.Adopted)
		t.last = process.PID
	}
	return process
}

// lost logs the last words of a process that was there the last time.
func (t *Tunnel) lost() {
	if t.last != 0 {
		t.log.Warn("tunnel process is gone, starting another", "device", t.Device, "pid", t.last, "log", t.tail())
		t.last = 0
	}
}

// start runs the process, and remembers it only to collect its exit status.
func (t *Tunnel) start(context.Context) error {
	log, err := t.newLog()
	if err != nil {
		return err
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	// What the agent inherited from whoever started it is not marked close-on-exec. An older
	// kernel than 5.11 does not know the flag; then the process has these files, too.
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	args := []string{t.Executable, "tunnel", "--device", t.Device, "--mtu", strconv.Itoa(t.MTU), "--profile", t.file(".pprof")}
	process, err := os.StartProcess(t.Executable, args, &os.ProcAttr{
		Dir:   "/",
		Env:   []string{}, // not nil, which would be the agent's
		Files: []*os.File{null, log, log},
		Sys:   &unix.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return err
	}
	t.child = process.Pid
	if err := Prefer(process.Pid); err != nil {
		t.log.Debug("tunnel process has no priority over others", "device", t.Device, "pid", process.Pid, "error", err)
	}
	return process.Release()
}

// newLog opens an empty log and keeps the one before, which may say why that process died.
func (t *Tunnel) newLog() (*os.File, error) {
	path := t.file(".log")
	if err := os.Rename(path, path+".old"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
}

// tail returns the end of the process's log.
func (t *Tunnel) tail() string {
	text, err := os.ReadFile(t.file(".log"))
	if err != nil {
		return err.Error()
	}
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return "(empty)"
	}
	return string(text[max(0, len(text)-logTail):])
}

func (t *Tunnel) file(suffix string) string {
	return filepath.Join(t.RunDir, "tunnel-"+t.Device+suffix)
}

// reap collects the child if it has ended, and reports that it has.
func (t *Tunnel) reap() bool {
	if t.child == 0 {
		return false
	}
	pid, err := unix.Wait4(t.child, nil, unix.WNOHANG, nil)
	if pid == 0 && err == nil {
		return false
	}
	t.child = 0
	return true
}

// kill ends a child that was not ready in time. Its number is its own until it is reaped.
func (t *Tunnel) kill() {
	if t.child == 0 {
		return
	}
	_ = unix.Kill(t.child, unix.SIGKILL)
	_, _ = unix.Wait4(t.child, nil, 0, nil)
	t.child = 0
}

// lock waits until no other process has the file locked.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
		}
		if err := sleep(ctx, startPoll); err != nil {
			return nil, errors.Join(fmt.Errorf("wait for another agent that has %s locked: %w", path, err), file.Close())
		}
	}
}

func linkExists(name string) bool {
	_, err := net.InterfaceByName(name)
	return err == nil
}

func sleep(ctx context.Context, duration time.Duration) error {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
