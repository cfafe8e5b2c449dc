package wgtest

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// NeedRoot skips a test that makes devices or namespaces where it may not; with CI=true it fails.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("needs root")
	}
	t.Skip("needs root")
}

// Namespace is a network namespace with its loopback up. It is gone when the test ends.
type Namespace struct {
	name string
	file *os.File
}

var serial atomic.Uint32

// unique returns a name of at most 14 bytes that no other test uses, in this process or another.
func unique(prefix string) string {
	return fmt.Sprintf("%s%x-%x", prefix, os.Getpid(), serial.Add(1))
}

// DeviceName returns a new name for a WireGuard device. The names have to differ between
// namespaces, too, since the sockets of all userspace devices lie in one folder.
func DeviceName() string { return unique("wgt") }

// NewNamespace makes a namespace.
func NewNamespace(t testing.TB) *Namespace {
	t.Helper()
	NeedRoot(t)
	n := &Namespace{name: unique("wgt")}
	execute(t, "ip", "netns", "add", n.name)
	t.Cleanup(func() { execute(t, "ip", "netns", "delete", n.name) })
	file, err := os.Open("/var/run/netns/" + n.name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	n.file = file
	n.IP(t, "link", "set", "lo", "up")
	return n
}

// IP runs ip(8) in the namespace and returns what it prints.
func (n *Namespace) IP(t testing.TB, args ...string) string {
	t.Helper()
	return execute(t, "ip", append([]string{"-n", n.name}, args...)...)
}

// Do runs f on a thread in the namespace: the sockets f opens and the processes it starts belong
// there. The goroutines it starts do not run there.
func (n *Namespace) Do(t testing.TB, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter namespace %s: %w", n.name, err)
			return
		}
		done <- f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// Take moves a device from another namespace into this one.
func (n *Namespace) Take(t testing.TB, from *Namespace, device string) {
	t.Helper()
	from.IP(t, "link", "set", device, "netns", n.name)
}

// Sysctl writes a setting of the namespace, named by its path below /proc/sys.
func (n *Namespace) Sysctl(t testing.TB, path, value string) {
	t.Helper()
	n.Do(t, func() error { return os.WriteFile("/proc/sys/"+path, []byte(value), 0) })
}

// Connect joins two namespaces by a pair of virtual Ethernet devices named eth0, with these addresses.
func Connect(t testing.TB, left, right *Namespace, leftAddr, rightAddr netip.Prefix) {
	t.Helper()
	left.IP(t, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", right.name)
	for _, end := range []struct {
		namespace *Namespace
		addr      netip.Prefix
	}{{left, leftAddr}, {right, rightAddr}} {
		end.namespace.IP(t, "address", "add", end.addr.String(), "dev", "eth0", "nodad")
		end.namespace.IP(t, "link", "set", "eth0", "up")
	}
}

func execute(t testing.TB, command string, args ...string) string {
	t.Helper()
	output, err := exec.Command(command, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", command, args, err, output)
	}
	return string(output)
}
