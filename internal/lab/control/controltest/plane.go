// Package controltest gives tests a running API server of their own: real etcd and kube-apiserver in a
// network namespace that nobody else has, one for all tests of a package, removed whatever becomes of them.
//
//	func TestMain(m *testing.M) { os.Exit(controltest.Main(m)) }
//
//	func TestNodes(t *testing.T) {
//		plane := controltest.Shared(t)
//		nodes, err := plane.Kubectl(t.Context(), "", "get", "nodes")
//	}
package controltest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"warren/internal/lab/control"
	"warren/internal/lab/netns"
)

// Address of the API server inside its namespace.
var Address = netip.MustParseAddr("10.99.0.1")

// shared is the plane of all tests in this process.
var shared struct {
	once  sync.Once
	bed   *bed
	plane *control.Plane
	err   error
}

// Main runs a package's tests and removes the shared plane, for os.Exit.
func Main(m *testing.M) int {
	code := m.Run()
	if shared.bed != nil {
		if err := shared.bed.remove(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return max(code, 1)
		}
	}
	return code
}

// Shared returns the plane that all tests of the process share; the first one waits some seconds for it.
// A test that uses it has to call its objects by names of its own.
func Shared(t testing.TB) *control.Plane {
	t.Helper()
	Need(t)
	shared.once.Do(func() {
		shared.bed, shared.err = lay()
		if shared.err == nil {
			shared.plane, shared.err = shared.bed.start()
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.plane
}

// Own returns a plane that only this test has, to be killed, wiped and restored as it pleases.
func Own(t testing.TB) *control.Plane {
	t.Helper()
	Need(t)
	b, err := lay()
	if b != nil {
		t.Cleanup(func() {
			if err := b.remove(); err != nil {
				t.Error(err)
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	plane, err := b.start()
	if err != nil {
		t.Fatal(err)
	}
	return plane
}

// Need skips a test that has no Kubernetes to run: `make test-kube`, which accepts no skip, builds one and
// says where it is.
func Need(t testing.TB) {
	t.Helper()
	if os.Getenv(control.BinariesVariable) == "" {
		t.Skipf("runs with a real Kubernetes: `make test-kube`, or %s=FOLDER of scripts/kubetools.sh", control.BinariesVariable)
	}
	if os.Geteuid() != 0 {
		t.Skip("an API server gets a network namespace: needs root")
	}
}

// bed is a namespace and a folder, and who removes both.
type bed struct {
	namespace, dir string
	lease          io.Closer
	remover        *exec.Cmd
}

// removal waits until nobody holds its input any more, and then removes everything. It is a process of its
// own, so that it also does so for a test that was killed.
const removal = `cat >/dev/null
while pids=$(ip netns pids "$0") && [ -n "$pids" ]; do kill -9 $pids; sleep .05; done
ip netns delete "$0" && rm -rf "$1"`

// lay makes a namespace with an address, after its remover.
func lay() (*bed, error) {
	dir, err := os.MkdirTemp("", "warren-control-")
	if err != nil {
		return nil, err
	}
	b := &bed{namespace: filepath.Base(dir), dir: dir}
	if err := b.startRemover(); err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	return b, b.makeNamespace()
}

func (b *bed) startRemover() (err error) {
	b.remover = exec.Command("sh", "-c", removal, b.namespace, b.dir)
	b.remover.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if b.lease, err = b.remover.StdinPipe(); err != nil {
		return err
	}
	return b.remover.Start()
}

func (b *bed) makeNamespace() error {
	if err := netns.Create(context.Background(), b.namespace); err != nil {
		return err
	}
	return netns.Batch(context.Background(), netns.Script{Namespace: b.namespace, Tool: "ip", Lines: []string{
		"link set lo up",
		"link add lan type bridge",
		"address add " + Address.String() + "/24 dev lan",
		"link set lan up",
	}})
}

func (b *bed) start() (*control.Plane, error) {
	binaries, err := control.FindBinaries("")
	if err != nil {
		return nil, err
	}
	return control.Start(context.Background(), control.Options{Dir: b.dir, Binaries: binaries, Namespace: b.namespace, Address: Address})
}

// remove lets the remover do its work and waits for it.
func (b *bed) remove() error {
	_ = b.lease.Close()
	if err := b.remover.Wait(); err != nil {
		return fmt.Errorf("remove the API server's namespace %s and folder %s: %w", b.namespace, b.dir, err)
	}
	return nil
}
