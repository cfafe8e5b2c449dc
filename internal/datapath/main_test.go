package datapath

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"warren/internal/cluster"
	"warren/internal/datapath/model"
	"warren/internal/plan"
)

// isolated is set in the process that runs the tests: it has network and mount namespaces of its
// own, so that whatever a test leaves behind goes with it, even after kill -9.
const isolated = "WARREN_TEST_ISOLATED"

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 || os.Getenv(isolated) != "" {
		os.Exit(m.Run())
	}
	os.Exit(runIsolated())
}

func runIsolated() int {
	runtime.LockOSThread() // Pdeathsig is about the thread that started the child
	command := exec.Command("/proc/self/exe", os.Args[1:]...)
	command.Args[0] = os.Args[0]
	command.Env = append(os.Environ(), isolated+"=1")
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{
		Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		Pdeathsig:    syscall.SIGKILL,
	}
	err := command.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "run the tests in namespaces of their own:", err)
		return 1
	}
	return 0
}

// needRoot skips where the kernel cannot be asked, but not where it has to be.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("needs root")
	}
	t.Skip("needs root")
}

// bpffs returns a folder on a BPF file system of the test's own.
func bpffs(t testing.TB) string {
	t.Helper()
	needRoot(t)
	root := t.TempDir()
	if err := unix.Mount("bpf", root, "bpf", 0, ""); err != nil {
		t.Fatalf("mount a BPF file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount the BPF file system: %v", err)
		}
	})
	return filepath.Join(root, "warren")
}

// open opens a datapath, in a folder of its own and with filters unless the options have some.
func open(t testing.TB, options Options) *Datapath {
	t.Helper()
	if options.Dir == "" {
		options.Dir = bpffs(t)
	}
	if options.Filters == nil {
		options.Filters = newTrafficControl(t)
	}
	d, err := Open(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// testConfig is the configuration that tests change.
func testConfig() model.Config {
	return model.Config{Mark: 0x10, MarkMask: 0x10, Port: cluster.DefaultPort, Tunnels: [plan.Slots]uint32{9}, PrimaryUnderlay: 2, Mode: cluster.ModePermissive}
}

func configure(t testing.TB, d *Datapath, config model.Config) {
	t.Helper()
	if err := d.Configure(config); err != nil {
		t.Fatal(err)
	}
}
