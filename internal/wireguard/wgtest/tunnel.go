package wgtest

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"warren/internal/wireguard/userspace"
)

// Main is the TestMain of packages whose tests start tunnel processes: their test binary is its own
// `warren tunnel`.
func Main(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "tunnel" {
		if err := runTunnel(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// verbose is the name of a link to the test binary by which the tunnel logs everything it can.
const verbose = "verbose"

// VerboseExecutable is for TunnelOptions of tests that look for what must not be logged.
func VerboseExecutable(t testing.TB) string {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), verbose)
	if err := os.Symlink(executable, link); err != nil {
		t.Fatal(err)
	}
	return link
}

func runTunnel(args []string) error {
	flags := flag.NewFlagSet("tunnel", flag.ContinueOnError)
	device := flags.String("device", "", "")
	mtu := flags.Int("mtu", 0, "")
	profile := flags.String("profile", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	level := slog.LevelInfo
	if filepath.Base(os.Args[0]) == verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	return userspace.Run(context.Background(), userspace.Options{Device: *device, MTU: *mtu, Logger: log, Profile: *profile})
}

// Tunnel is a tunnel process in a namespace, started from the running test binary (see Main).
type Tunnel struct {
	*userspace.Tunnel
	namespace *Namespace
}

// NewTunnel returns a tunnel that is not started yet, and ends when the test does.
func (n *Namespace) NewTunnel(t testing.TB, o userspace.TunnelOptions) Tunnel {
	t.Helper()
	if o.Executable == "" {
		executable, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		o.Executable = executable
	}
	if o.Device == "" {
		o.Device = DeviceName()
	}
	if o.MTU == 0 {
		o.MTU = 1400
	}
	if o.RunDir == "" {
		o.RunDir = t.TempDir()
	}
	t.Cleanup(func() {
		if err := userspace.Stop(context.Background(), o.Device); err != nil {
			t.Error(err)
		}
	})
	return Tunnel{userspace.NewTunnel(o, slog.New(slog.DiscardHandler)), n}
}

// Ensure is userspace.Tunnel.Ensure in the namespace.
func (tunnel Tunnel) Ensure(t testing.TB) userspace.Process {
	t.Helper()
	var process userspace.Process
	tunnel.namespace.Do(t, func() (err error) {
		process, err = tunnel.Tunnel.Ensure(context.Background())
		return err
	})
	return process
}

// Log returns what the process has logged.
func (tunnel Tunnel) Log(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(tunnel.RunDir, "tunnel-"+tunnel.Device+".log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
