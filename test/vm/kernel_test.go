package vm

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"warren/test/vm/job"
)

// needGuest skips outside a virtual machine: the machine's own kernel may have no WireGuard, and is
// not one of those that are to be tested.
func needGuest(t *testing.T) {
	t.Helper()
	if os.Getenv(job.InGuest) == "" {
		t.Skip("runs in the virtual machines of `make test-vm`")
	}
}

// kernelRelease returns the first two numbers of the running kernel, such as 6 and 12.
func kernelRelease(t *testing.T) (major, minor int) {
	t.Helper()
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	release := unix.ByteSliceToString(name.Release[:])
	numbers := strings.SplitN(release, ".", 3)
	if len(numbers) < 3 {
		t.Fatalf("kernel release %q", release)
	}
	major, majorErr := strconv.Atoi(numbers[0])
	minor, minorErr := strconv.Atoi(numbers[1])
	if majorErr != nil || minorErr != nil {
		t.Fatalf("kernel release %q", release)
	}
	return major, minor
}

// wantAttach is how an agent that chooses for itself attaches its programs: TCX came with Linux 6.6.
func wantAttach(t *testing.T) string {
	t.Helper()
	if major, minor := kernelRelease(t); major < 6 || major == 6 && minor < 6 {
		return "clsact"
	}
	return "tcx"
}
