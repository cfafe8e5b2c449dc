package wgtest

import (
	"log/slog"
	"os/exec"
	"strings"
	"testing"

	"warren/internal/wireguard"
	"warren/internal/wireguard/userspace"
)

// Engine makes a new WireGuard device in a namespace, which is gone when the test ends.
type Engine func(t testing.TB, n *Namespace) Device

// Device is a WireGuard device in a namespace.
type Device struct {
	*wireguard.Device
	Name string
}

// EachEngine runs a test with every kind of real device. The kernel's is skipped where the kernel
// has no WireGuard.
func EachEngine(t *testing.T, test func(t *testing.T, engine Engine)) {
	t.Run("userspace", func(t *testing.T) { test(t, Userspace) })
	t.Run("kernel", func(t *testing.T) {
		needKernel(t)
		test(t, Kernel)
	})
}

// Userspace is the Engine of tunnel processes; the package's TestMain has to call Main.
func Userspace(t testing.TB, n *Namespace) Device {
	t.Helper()
	tunnel := n.NewTunnel(t, userspace.TunnelOptions{})
	tunnel.Ensure(t)
	return n.Open(t, tunnel.Device, slog.New(slog.DiscardHandler))
}

// Kernel is the Engine of the kernel's own devices.
func Kernel(t testing.TB, n *Namespace) Device {
	t.Helper()
	name := DeviceName()
	n.IP(t, "link", "add", name, "type", "wireguard")
	return n.Open(t, name, slog.New(slog.DiscardHandler))
}

// Open opens a device that is in the namespace.
func (n *Namespace) Open(t testing.TB, name string, log *slog.Logger) Device {
	t.Helper()
	var device *wireguard.Device
	n.Do(t, func() (err error) {
		device, err = wireguard.Open(name, log)
		return err
	})
	t.Cleanup(func() { _ = device.Close() })
	return Device{device, name}
}

// needKernel asks the kernel for a device in a namespace that goes at once.
func needKernel(t testing.TB) {
	t.Helper()
	n := NewNamespace(t)
	output, err := exec.Command("ip", "-n", n.name, "link", "add", "probe", "type", "wireguard").CombinedOutput()
	switch {
	case err == nil:
	case strings.Contains(string(output), "Unknown device type"), strings.Contains(string(output), "not supported"):
		t.Skip("the kernel has no WireGuard")
	default:
		t.Fatalf("make a WireGuard device: %v: %s", err, output)
	}
}
