package dir

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"

	"warren/internal/cluster"
	"warren/internal/discovery/record"
	"warren/internal/discovery/record/recordtest"
)

var n1 = cluster.NodeID{Cluster: "default", Name: "n1"}

// list returns the names in a folder, temporary files and all.
func list(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return strings.Join(names, " ")
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return string(data)
}

func TestPublish(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, ".n1.yaml.1.tmp"), nil)  // left by a run that was killed
	write(t, filepath.Join(dir, ".n11.yaml.1.tmp"), nil) // another machine's, being written
	d := New(Options{Path: dir, Self: n1})
	node := recordtest.Sample("n1", 1)
	must(t, d.Publish(t.Context(), node))
	if got := list(t, dir); got != ".n11.yaml.1.tmp n1.yaml" {
		t.Errorf("in the folder: %s", got)
	}
	file := filepath.Join(dir, "n1.yaml")
	if diff := cmp.Diff(string(record.Marshal(node)), read(t, file)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	info, err := os.Stat(file)
	must(t, err)
	if info.Mode() != 0o644 {
		t.Errorf("mode %v", info.Mode())
	}

	later := node
	later.Issued = recordtest.Issued.Add(time.Hour)
	must(t, d.Publish(t.Context(), later))
	if diff := cmp.Diff(string(record.Marshal(node)), read(t, file)); diff != "" {
		t.Errorf("only the time differs, and the file was written (-want +got)\n%s", diff)
	}
	earlier := node
	earlier.Issued = recordtest.Issued.Add(-time.Hour) // the clock was wrong when the file was written
	must(t, d.Publish(t.Context(), earlier))
	if diff := cmp.Diff(string(record.Marshal(earlier)), read(t, file)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	changed := recordtest.Sample("n1", 2)
	must(t, d.Publish(t.Context(), changed))
	if diff := cmp.Diff(string(record.Marshal(changed)), read(t, file)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestPublishRefuses(t *testing.T) {
	dir := t.TempDir()
	invalid := recordtest.Sample("n1", 1)
	invalid.Addresses = nil
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	tests := []struct {
		name string
		ctx  context.Context
		self cluster.NodeID
		path string
		node cluster.Node
		want string
	}{
		{"another machine", t.Context(), n1, dir, recordtest.Sample("n2", 2), "publish the record of default/n2: this machine is default/n1"},
		{"no machine", t.Context(), cluster.NodeID{}, dir, recordtest.Sample("n1", 1), "publish the record of default/n1: this machine is -"},
		{"reserved name", t.Context(), cluster.NodeID{Cluster: "default", Name: "apiserver"}, dir, recordtest.Sample("apiserver", 1), "publish the record of default/apiserver: the name is reserved; give the machine another one"},
		{"what nobody would read", t.Context(), n1, dir, invalid, "publish the record of default/n1: DIR/n1.yaml:4:12: addresses: none; a node needs at least one underlay address"},
		{"no time", canceled, n1, dir, recordtest.Sample("n1", 1), "publish the record of default/n1: context canceled"},
		{"no folder", t.Context(), n1, filepath.Join(dir, "none"), recordtest.Sample("n1", 1), "publish the record of default/n1: open DIR/none/: no such file or directory"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			err := New(Options{Path: tc.path, Self: tc.self}).Publish(tc.ctx, tc.node)
			if err == nil {
				t.Fatal("published")
			}
			if got := strings.ReplaceAll(err.Error(), dir, "DIR"); got != tc.want {
				t.Errorf("want %s\ngot  %s", tc.want, got)
			}
			if got := list(t, dir); got != "" {
				t.Errorf("in the folder: %s", got)
			}
		})
	}
}

// TestPublishedWhenTheFolderComes: what could not be written is written as soon as it can be.
func TestPublishedWhenTheFolderComes(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dir, _ *fakeKernel) {
		must(t, os.Remove(d.path))
		c := run(t, d)
		if err := d.Publish(t.Context(), recordtest.Sample("n1", 1)); err == nil {
			t.Fatal("published")
		}
		after(t, 0, c, "not synced, 1 problems")
		must(t, os.Mkdir(d.path, 0o755))
		after(t, 2*retry, c, "n1=10.0.0.1, 0 problems")
	})
}

func TestOwnRecordIsKept(t *testing.T) {
	damages := map[string]func(t *testing.T, file string){
		"deleted": func(t *testing.T, file string) { must(t, os.Remove(file)) },
		"altered": func(t *testing.T, file string) {
			node := recordtest.Sample("n1", 1)
			node.Prefixes = nil
			write(t, file, record.Marshal(node))
		},
		"aged": func(t *testing.T, file string) {
			node := recordtest.Sample("n1", 1)
			node.Issued = recordtest.Issued.Add(-time.Hour)
			write(t, file, record.Marshal(node))
		},
		"broken": func(t *testing.T, file string) { write(t, file, []byte("version: 1\n")) },
		"in the way": func(t *testing.T, file string) {
			must(t, os.Remove(file))
			must(t, os.Symlink("n1.yaml", file))
		},
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *Dir, _ *fakeKernel) {
				c := run(t, d)
				must(t, d.Publish(t.Context(), recordtest.Sample("n1", 1)))
				after(t, DefaultRescan, c, "n1=10.0.0.1, 0 problems")
				damage(t, d.ownPath())
				after(t, DefaultRescan+retry, c, "n1=10.0.0.1, 0 problems")
				if diff := cmp.Diff(string(record.Marshal(recordtest.Sample("n1", 1))), read(t, d.ownPath())); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			})
		})
	}
}

// TestOwnRecordCannotBeWritten: it is a problem, tried again no faster than once a second, and over when
// it works.
func TestOwnRecordCannotBeWritten(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dir, _ *fakeKernel) {
		must(t, os.Mkdir(d.ownPath(), 0o755)) // a file cannot be renamed over a folder, not even by root
		c := run(t, d)
		if err := d.Publish(t.Context(), recordtest.Sample("n1", 1)); err == nil {
			t.Fatal("published")
		}
		after(t, 2*DefaultRescan, c, ", 2 problems") // and the folder is no record
		if want := "this machine's record cannot be written: "; !strings.Contains(c.problem(0)+c.problem(1), want) {
			t.Errorf("no %q in %q %q", want, c.problem(0), c.problem(1))
		}
		if got := list(t, d.path); got != "n1.yaml" {
			t.Errorf("in the folder: %s", got)
		}
		must(t, os.Remove(d.ownPath()))
		after(t, 2*retry, c, "n1=10.0.0.1, 0 problems")
	})
}

// TestTwoMachinesWithOneName: each writes its record again, not faster than the rescan, and both say
// whose key is in the way; when one of them is renamed, the other is left in peace.
func TestTwoMachinesWithOneName(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dir, k *fakeKernel) {
		twin := New(Options{Path: d.path, Self: n1})
		k2 := &fakeKernel{events: make(chan fsnotify.Event), errors: make(chan error)}
		twin.open = k2.open
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		other := &consumer{nodes: map[string]string{}}
		c := run(t, d)
		go func() { done <- twin.Run(ctx, other.emit) }()
		must(t, d.Publish(t.Context(), recordtest.Sample("n1", 1)))
		synctest.Wait()
		must(t, twin.Publish(t.Context(), recordtest.Sample("n1", 2)))

		writes, last := 0, read(t, d.ownPath())
		for range 600 { // a minute
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if now := read(t, d.ownPath()); now != last {
				writes, last = writes+1, now
				k.tell(d.ownPath())
				k2.tell(d.ownPath())
			}
		}
		if writes < 2 || writes > 16 {
			t.Errorf("the record was written %d times in a minute", writes)
		}
		for who, problem := range map[string]string{"first": c.problem(0), "second": other.problem(0)} {
			if !strings.Contains(problem, "another agent writes this machine's record, with key ") {
				t.Errorf("%s: %q", who, problem)
			}
		}

		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		after(t, 3*DefaultRescan, c, "n1=10.0.0.1, 1 problems")
		after(t, rivalry*DefaultRescan, c, "n1=10.0.0.1, 0 problems")
	})
}

func TestWithdraw(t *testing.T) {
	other := recordtest.Sample("n1", 9)
	tests := []struct {
		name      string
		published bool
		file      []byte
		want      string // the error
		left      string // in the folder
	}{
		{"published", true, nil, "", "n2.yaml"},
		{"by an earlier run", false, record.Marshal(recordtest.Sample("n1", 1)), "", "n2.yaml"},
		{"nothing there", false, nil, "", "n2.yaml"},
		{"broken", false, []byte("x"), "", "n2.yaml"},
		{"another machine's key", true, record.Marshal(other), "withdraw the record of default/n1: DIR/n1.yaml is that of default/n1 with another key; remove it by hand if it should go", "n1.yaml n2.yaml"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			put(t, dir, recordtest.Sample("n2", 2))
			d := New(Options{Path: dir, Self: n1})
			if tc.published {
				must(t, d.Publish(t.Context(), recordtest.Sample("n1", 1)))
			}
			if tc.file != nil {
				write(t, filepath.Join(dir, "n1.yaml"), tc.file)
			}
			got := ""
			if err := d.Withdraw(t.Context()); err != nil {
				got = strings.ReplaceAll(err.Error(), dir, "DIR")
			}
			if got != tc.want {
				t.Errorf("want %q\ngot  %q", tc.want, got)
			}
			if got := list(t, dir); got != tc.left {
				t.Errorf("want left %s, got %s", tc.left, got)
			}
		})
	}
	if err := New(Options{Path: t.TempDir()}).Withdraw(t.Context()); err == nil {
		t.Error("no machine was named, and something was withdrawn")
	}
}

// TestWithdrawnStaysAway: after Withdraw the record is not written again.
func TestWithdrawnStaysAway(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dir, _ *fakeKernel) {
		c := run(t, d)
		must(t, d.Publish(t.Context(), recordtest.Sample("n1", 1)))
		after(t, DefaultRescan, c, "n1=10.0.0.1, 0 problems")
		must(t, d.Withdraw(t.Context()))
		after(t, 3*DefaultRescan, c, ", 0 problems")
		if got := list(t, d.path); got != "" {
			t.Errorf("in the folder: %s", got)
		}
	})
}
