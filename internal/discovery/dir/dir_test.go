package dir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"

	"warren/internal/cluster"
	"warren/internal/discovery"
	"warren/internal/discovery/durable"
	"warren/internal/discovery/record"
	"warren/internal/discovery/record/recordtest"
)

// consumer keeps what Run told, as an agent does.
type consumer struct {
	mu       sync.Mutex
	nodes    map[string]string // address by name
	problems []string
	synced   bool
	deletes  int
}

func (c *consumer) emit(e discovery.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Kind {
	case discovery.Upsert:
		c.nodes[e.ID.Name] = e.Node.Addresses[0].String()
	case discovery.Delete:
		delete(c.nodes, e.ID.Name)
		c.deletes++
	case discovery.Problems:
		c.problems = nil
		for _, p := range e.Problems {
			c.problems = append(c.problems, p.String())
		}
	case discovery.Synced:
		c.synced = true
	}
}

// String shows what is known: "n1=10.0.0.1 n2=10.0.0.2, 1 problems".
func (c *consumer) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.synced {
		return fmt.Sprintf("not synced, %d problems", len(c.problems))
	}
	var words []string
	for name, addr := range c.nodes {
		words = append(words, name+"="+addr)
	}
	slices.Sort(words)
	return fmt.Sprintf("%s, %d problems", strings.Join(words, " "), len(c.problems))
}

func (c *consumer) problem(i int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i >= len(c.problems) {
		return ""
	}
	return c.problems[i]
}

// run runs d until the test ends.
func run(t *testing.T, d *Dir) *consumer {
	t.Helper()
	c := &consumer{nodes: map[string]string{}}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- d.Run(ctx, c.emit) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run ended with %v", err)
		}
	})
	return c
}

// eventually waits, in real time, until the consumer knows what is wanted.
func eventually(t *testing.T, c *consumer, want string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		got := c.String()
		if got == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("want %q, still %q (%s)", want, got, c.problem(0))
		}
	}
}

func put(t *testing.T, dir string, node cluster.Node) {
	t.Helper()
	must(t, durable.Replace(filepath.Join(dir, FileName(node.ID)), record.Marshal(node), 0o644))
}

// TestRealFolder goes through the life of a folder with the kernel's own notifications; the rescan is
// so rare that nothing is found by it.
func TestRealFolder(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "nodes")
	must(t, os.Mkdir(dir, 0o755))
	put(t, dir, recordtest.Sample("n1", 1))
	c := run(t, New(Options{Path: dir, Rescan: time.Hour}))
	eventually(t, c, "n1=10.0.0.1, 0 problems")

	put(t, dir, recordtest.Sample("n2", 2))
	eventually(t, c, "n1=10.0.0.1 n2=10.0.0.2, 0 problems")
	put(t, dir, recordtest.Sample("n2", 3))
	eventually(t, c, "n1=10.0.0.1 n2=10.0.0.3, 0 problems")

	write(t, filepath.Join(dir, "n2.yaml"), []byte("version: 1\nname"))
	eventually(t, c, "n1=10.0.0.1 n2=10.0.0.3, 1 problems")
	write(t, filepath.Join(dir, "n2.yaml"), record.Marshal(recordtest.Sample("n2", 2))) // in place, not by rename
	eventually(t, c, "n1=10.0.0.1 n2=10.0.0.2, 0 problems")

	must(t, os.Remove(filepath.Join(dir, "n1.yaml")))
	eventually(t, c, "n2=10.0.0.2, 0 problems")
}

// TestFolderGoesAndComes: while the folder is away nothing changes, and the one that takes its place is
// watched.
func TestFolderGoesAndComes(t *testing.T) {
	top := t.TempDir()
	dir, away := filepath.Join(top, "nodes"), filepath.Join(top, "away")
	must(t, os.Mkdir(dir, 0o755))
	put(t, dir, recordtest.Sample("n1", 1))
	put(t, dir, recordtest.Sample("n2", 2))
	c := run(t, New(Options{Path: dir, Rescan: time.Hour}))
	eventually(t, c, "n1=10.0.0.1 n2=10.0.0.2, 0 problems")

	must(t, os.Rename(dir, away)) // as when permission is lost
	eventually(t, c, "n1=10.0.0.1 n2=10.0.0.2, 1 problems")
	if want := dir + ": the folder cannot be read: no such file or directory"; !strings.HasPrefix(c.problem(0), want) {
		t.Errorf("want %q, got %q", want, c.problem(0))
	}
	must(t, os.Rename(away, dir))
	eventually(t, c, "n1=10.0.0.1 n2=10.0.0.2, 0 problems")
	put(t, dir, recordtest.Sample("n1", 7))
	eventually(t, c, "n1=10.0.0.7 n2=10.0.0.2, 0 problems")

	must(t, os.RemoveAll(dir))
	must(t, os.Mkdir(dir, 0o755))
	eventually(t, c, "n1=10.0.0.7 n2=10.0.0.2, 1 problems")
	put(t, dir, recordtest.Sample("n1", 1))
	put(t, dir, recordtest.Sample("n3", 3))
	eventually(t, c, "n1=10.0.0.1 n3=10.0.0.3, 0 problems")

	next := filepath.Join(top, "next") // another folder is moved into the place
	must(t, os.Mkdir(next, 0o755))
	put(t, next, recordtest.Sample("n4", 4))
	must(t, os.Rename(dir, away))
	must(t, os.Rename(next, dir))
	eventually(t, c, "n4=10.0.0.4, 0 problems")
	put(t, dir, recordtest.Sample("n5", 5))
	eventually(t, c, "n4=10.0.0.4 n5=10.0.0.5, 0 problems")
}

// TestUnmountedFolder mounts a file system with records and takes it away.
func TestUnmountedFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nodes")
	must(t, os.Mkdir(dir, 0o755))
	if err := syscall.Mount("warren-test", dir, "tmpfs", 0, "size=1m"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("mount: %v", err)
		}
		t.Skipf("mount: %v", err)
	}
	mounted := true
	t.Cleanup(func() {
		if mounted {
			_ = syscall.Unmount(dir, syscall.MNT_DETACH)
		}
	})
	put(t, dir, recordtest.Sample("n2", 2))
	d := New(Options{Path: dir, Self: cluster.NodeID{Cluster: "default", Name: "n1"}, Rescan: 100 * time.Millisecond})
	c := run(t, d)
	must(t, d.Publish(t.Context(), recordtest.Sample("n1", 1)))
	eventually(t, c, "n1=10.0.0.1 n2=10.0.0.2, 0 problems")

	must(t, syscall.Unmount(dir, syscall.MNT_DETACH))
	mounted = false
	eventually(t, c, "n1=10.0.0.1 n2=10.0.0.2, 1 problems")
	if !strings.Contains(c.problem(0), "replaced by one without records of other machines") {
		t.Error(c.problem(0))
	}
	time.Sleep(300 * time.Millisecond) // more rescans, with the own record back: still nothing is forgotten
	if got, want := c.String(), "n1=10.0.0.1 n2=10.0.0.2, 1 problems"; got != want {
		t.Errorf("want %q, got %q", want, got)
	}
}

func TestManyFilesAtOnce(t *testing.T) {
	dir := t.TempDir()
	c := run(t, New(Options{Path: dir, Rescan: time.Hour}))
	eventually(t, c, ", 0 problems")
	var want []string
	for i := 1; i <= 200; i++ {
		put(t, dir, recordtest.Sample(fmt.Sprintf("n%03d", i), byte(i)))
		want = append(want, fmt.Sprintf("n%03d=10.0.0.%d", i, i))
	}
	eventually(t, c, strings.Join(want, " ")+", 0 problems")
}

func TestCreate(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "etc", "warren", "nodes")
	c := run(t, New(Options{Path: dir, Create: true, Rescan: time.Hour}))
	eventually(t, c, ", 0 problems")

	file := filepath.Join(top, "file")
	write(t, file, nil)
	c = run(t, New(Options{Path: filepath.Join(file, "nodes"), Create: true}))
	eventually(t, c, "not synced, 2 problems")
}

// fakeKernel gives notifications when a test says so, in the time of a synctest bubble.
type fakeKernel struct {
	events chan fsnotify.Event
	errors chan error
	fail   atomic.Pointer[error]
	opened atomic.Int32
}

func (k *fakeKernel) failWith(err error) { k.fail.Store(&err) }

func (k *fakeKernel) open(string) (notifier, error) {
	if err := k.fail.Load(); err != nil && *err != nil {
		return notifier{}, *err
	}
	k.opened.Add(1)
	return notifier{events: k.events, errors: k.errors, close: func() error { return nil }}, nil
}

// tell reports a change of a file, unless the watch is not listening.
func (k *fakeKernel) tell(file string) {
	select {
	case k.events <- fsnotify.Event{Name: file, Op: fsnotify.Create}:
	default:
	}
}

// bubble runs a test with a folder, a Dir on it that hears of changes only through the fake kernel, and
// time that jumps.
func bubble(t *testing.T, test func(t *testing.T, d *Dir, k *fakeKernel)) {
	dir := filepath.Join(t.TempDir(), "nodes")
	must(t, os.Mkdir(dir, 0o755))
	synctest.Test(t, func(t *testing.T) {
		k := &fakeKernel{events: make(chan fsnotify.Event), errors: make(chan error)}
		d := New(Options{Path: dir, Self: cluster.NodeID{Cluster: "default", Name: "n1"}})
		d.open = k.open
		test(t, d, k)
	})
}

// after lets time pass and checks what is known then.
func after(t *testing.T, pass time.Duration, c *consumer, want string) {
	t.Helper()
	time.Sleep(pass)
	synctest.Wait()
	if got := c.String(); got != want {
		t.Errorf("after %s: want %q, got %q", pass, want, got)
	}
}

func TestRescan(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dir, _ *fakeKernel) {
		c := run(t, d)
		after(t, 0, c, ", 0 problems")
		put(t, d.path, recordtest.Sample("n2", 2))
		after(t, DefaultRescan-time.Millisecond, c, ", 0 problems")
		after(t, time.Millisecond, c, "n2=10.0.0.2, 0 problems")
	})
}

func TestEventsAreGathered(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dir, k *fakeKernel) {
		c := run(t, d)
		after(t, 0, c, ", 0 problems")
		put(t, d.path, recordtest.Sample("n2", 2))
		for range 4 { // changes that do not end
			k.events <- fsnotify.Event{Name: d.path + "/n2.yaml", Op: fsnotify.Write}
			after(t, settle/5, c, ", 0 problems")
		}
		after(t, settle/5, c, "n2=10.0.0.2, 0 problems")
	})
}

func TestMissingFolderIsLookedFor(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dir, k *fakeKernel) {
		must(t, os.Remove(d.path))
		c := run(t, d)
		after(t, 0, c, "not synced, 1 problems")
		must(t, os.Mkdir(d.path, 0o755))
		after(t, retry, c, ", 0 problems")
		if k.opened.Load() != 1 {
			t.Errorf("opened %d watches", k.opened.Load())
		}
	})
}

// TestDeadWatch: a folder that was removed has another watch at once, even when the folder in its place
// cannot be told from it.
func TestDeadWatch(t *testing.T) {
	for name, kill := range map[string]func(d *Dir, k *fakeKernel){
		"folder removed": func(d *Dir, k *fakeKernel) { k.events <- fsnotify.Event{Name: d.path, Op: fsnotify.Remove} },
		"folder renamed": func(d *Dir, k *fakeKernel) { k.events <- fsnotify.Event{Name: d.path, Op: fsnotify.Rename} },
		"queue overflow": func(_ *Dir, k *fakeKernel) { k.errors <- fsnotify.ErrEventOverflow },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *Dir, k *fakeKernel) {
				c := run(t, d)
				after(t, 0, c, ", 0 problems")
				put(t, d.path, recordtest.Sample("n2", 2))
				kill(d, k)
				after(t, settle, c, "n2=10.0.0.2, 0 problems")
				if k.opened.Load() != 2 {
					t.Errorf("opened %d watches", k.opened.Load())
				}
			})
		})
	}
}

func TestWithoutNotifications(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dir, k *fakeKernel) {
		k.failWith(os.NewSyscallError("inotify_init1", syscall.EMFILE))
		c := run(t, d)
		after(t, 0, c, ", 1 problems")
		want := d.path + ": changes are not reported: inotify_init1: too many open files; raise fs.inotify.max_user_instances and max_user_watches (sysctl); until then the folder is read every second"
		if diff := cmp.Diff(want, c.problem(0)); diff != "" {
			t.Error(diff)
		}
		put(t, d.path, recordtest.Sample("n2", 2))
		after(t, retry, c, "n2=10.0.0.2, 1 problems")
		k.failWith(errors.New("something else"))
		after(t, retry, c, "n2=10.0.0.2, 1 problems")
		k.failWith(nil)
		after(t, retry, c, "n2=10.0.0.2, 0 problems")
	})
}
