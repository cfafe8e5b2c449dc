package userspace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// stopGrace is how long a tunnel has to end by itself. It needs some milliseconds.
const stopGrace = 5 * time.Second

// Stop ends the tunnel process of a device, and with it the device. It first asks (SIGTERM), after
// five seconds it insists (SIGKILL), also when the process does not answer. One in another process namespace
// is only waited for: delete its device before. No process is no error.
// It returns when the process has ended, or with ctx.
func Stop(ctx context.Context, device string) error {
	if err := checkName(device); err != nil {
		return err
	}
	if err := stop(ctx, device); err != nil {
		return fmt.Errorf("stop the tunnel process of %s: %w", device, err)
	}
	return nil
}

func stop(ctx context.Context, device string) error {
	pid, err := listener(device)
	if err != nil {
		return removeStale(device)
	}
	if pid == 0 {
		return stopUnseen(ctx, device)
	}
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return ignoreGone(err)
	}
	defer unix.Close(process)
	// The number may have passed to another process before the descriptor was opened. If the
	// same number serves the socket now, the descriptor is of the process that does.
	if again, err := listener(device); err != nil || again != pid {
		return removeStale(device)
	}
	if err := terminate(ctx, process); err != nil {
		return err
	}
	return removeStale(device)
}

// stopUnseen is for a process in another process namespace, which a launcher started: it ends by itself when its
// device is deleted.
func stopUnseen(ctx context.Context, device string) error {
	ctx, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	for {
		if _, err := listener(device); err != nil {
			return removeStale(device)
		}
		if sleep(ctx, startPoll) != nil {
			return errors.New("it is in another process namespace; delete the device, then it ends")
		}
	}
}

func terminate(ctx context.Context, process int) error {
	grace, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	if err := unix.PidfdSendSignal(process, unix.SIGTERM, nil, 0); err != nil {
		return ignoreGone(err)
	}
	if ended(grace, process) {
		return nil
	}
	if err := unix.PidfdSendSignal(process, unix.SIGKILL, nil, 0); err != nil {
		return ignoreGone(err)
	}
	if !ended(ctx, process) {
		return context.Cause(ctx)
	}
	return nil
}

// ended waits until the process has ended or ctx does. A process descriptor is readable from the
// moment the process is dead, whether or not its parent has noticed.
func ended(ctx context.Context, process int) bool {
	for {
		fds := []unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}
		ready, err := unix.Poll(fds, int((50 * time.Millisecond).Milliseconds()))
		if err == nil && ready > 0 {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
	}
}

func ignoreGone(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}
