package userspace_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"warren/internal/wireguard/userspace"
	"warren/internal/wireguard/wgtest"
)

// TestRun is the process from within: ready when it can be found, nil at every wanted end.
func TestRun(t *testing.T) {
	tests := []struct {
		name string
		end  func(cancel context.CancelFunc, device string) error // on the namespace's thread
	}{
		{"until its context ends", func(cancel context.CancelFunc, _ string) error {
			cancel()
			return nil
		}},
		{"until its device is deleted", func(_ context.CancelFunc, device string) error {
			return exec.Command("ip", "link", "delete", device).Run()
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			namespace, device := wgtest.NewNamespace(t), wgtest.DeviceName()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			ready := func() {
				if pid, alive := userspace.Find(device); pid != os.Getpid() || !alive {
					t.Errorf("Find when ready: %d, %v; want this process", pid, alive)
				}
				if err := test.end(cancel, device); err != nil {
					t.Error(err)
				}
			}
			namespace.Do(t, func() error {
				return userspace.Run(ctx, userspace.Options{Device: device, Logger: slog.New(slog.DiscardHandler), Ready: ready})
			})
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Error("Run did not end by itself")
			}
			if _, err := os.Lstat(socketOf(device)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the socket is still there: %v", err)
			}
			if links := namespace.IP(t, "-brief", "link"); strings.Contains(links, device) {
				t.Errorf("the device is still there:\n%s", links)
			}
		})
	}
}

// TestRunFails: a second tunnel of the same name has nothing to do, and does the first no harm.
func TestRunFails(t *testing.T) {
	namespace := wgtest.NewNamespace(t)
	tunnel := namespace.NewTunnel(t, userspace.TunnelOptions{})
	process := tunnel.Ensure(t)
	run := func(device string) error {
		return userspace.Run(t.Context(), userspace.Options{Device: device, Logger: slog.New(slog.DiscardHandler)})
	}
	namespace.Do(t, func() error {
		if err := run(tunnel.Device); !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), tunnel.Device) {
			t.Errorf("same name and namespace: %v, want %v", err, unix.EBUSY)
		}
		return nil
	})
	wgtest.NewNamespace(t).Do(t, func() error {
		if err := run(tunnel.Device); err == nil || !strings.Contains(err.Error(), "serves it already") {
			t.Errorf("same name, another namespace: %v, want a refusal", err)
		}
		if err := run("a/b"); err == nil || !strings.Contains(err.Error(), `"a/b"`) {
			t.Errorf("bad name: %v", err)
		}
		return nil
	})
	if pid, alive := userspace.Find(tunnel.Device); pid != process.PID || !alive {
		t.Errorf("the first one: %d, %v; want %d, alive", pid, alive, process.PID)
	}
}
