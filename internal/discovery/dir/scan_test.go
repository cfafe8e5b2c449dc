package dir

import (
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"warren/internal/discovery/record"
	"warren/internal/discovery/record/recordtest"
)

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestScan reads a folder in which there is everything that a folder can have.
func TestScan(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	record := record.Marshal(recordtest.Sample("n1", 1))
	write(t, at("n1.yaml"), record)
	write(t, at(".n2.yaml.123.tmp"), record)
	write(t, at("README"), record)
	write(t, at("apiserver.yaml"), record)
	write(t, at("empty.yaml"), nil)
	must(t, os.Mkdir(at("folder.yaml"), 0o755))
	must(t, syscall.Mkfifo(at("pipe.yaml"), 0o644))
	must(t, os.Symlink("n1.yaml", at("link.yaml")))
	must(t, os.Symlink("nothing", at("dangling.yaml")))
	must(t, os.Symlink("b.yaml", at("a.yaml")))
	must(t, os.Symlink("a.yaml", at("b.yaml")))
	// As a mounted ConfigMap has it: the files are links into a folder that is swapped.
	must(t, os.Mkdir(at("..2026"), 0o755))
	write(t, at("..2026/n3.yaml"), record)
	must(t, os.Symlink("..2026", at("..data")))
	must(t, os.Symlink("..data/n3.yaml", at("n3.yaml")))
	// Ten megabytes that take no space.
	write(t, at("huge.yaml"), nil)
	must(t, os.Truncate(at("huge.yaml"), 10<<20))

	snap := scan(dir)
	if snap.lost != nil {
		t.Fatal(snap.lost)
	}
	var got []string
	for name, c := range snap.files {
		if c.unreadable != nil {
			got = append(got, name+": "+strings.TrimPrefix(c.unreadable.String(), dir+"/"))
			continue
		}
		got = append(got, name+": "+map[bool]string{true: "record", false: "empty"}[len(c.data) > 0])
	}
	sort.Strings(got)
	want := []string{
		"a.yaml: a.yaml: the file cannot be read: too many levels of symbolic links; remove the symbolic links that lead in a circle",
		"b.yaml: b.yaml: the file cannot be read: too many levels of symbolic links; remove the symbolic links that lead in a circle",
		"dangling.yaml: dangling.yaml: the file cannot be read: no such file or directory; remove the symbolic link, or restore what it leads to",
		"empty.yaml: empty",
		"folder.yaml: folder.yaml: the file cannot be read: not a regular file; remove it; a record is a small file",
		"huge.yaml: huge.yaml: the file cannot be read: more than 1048576 bytes; remove it; a record is a small file",
		"link.yaml: record",
		"n1.yaml: record",
		"n3.yaml: record",
		"pipe.yaml: pipe.yaml: the file cannot be read: not a regular file; remove it; a record is a small file",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestScanLost(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	write(t, file, nil)
	for path, want := range map[string]string{
		filepath.Join(dir, "none"): "the folder cannot be read: no such file or directory; create it, or mount the file system that has it; the records of before are kept meanwhile",
		file:                       "the folder cannot be read: not a directory; put a folder in its place; the records of before are kept meanwhile",
	} {
		snap := scan(path)
		if snap.lost == nil {
			t.Errorf("%s: read", path)
			continue
		}
		if got := snap.lost.String(); got != path+": "+want {
			t.Errorf("want %s\ngot  %s", path+": "+want, got)
		}
	}
}

// TestIdentity: a folder keeps its identity while its files change, and one in its place has another,
// also when the file system uses the inode again.
func TestIdentity(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nodes")
	must(t, os.Mkdir(dir, 0o755))
	first := identify(dir)
	if first == (identity{}) {
		t.Fatal("no identity")
	}
	write(t, filepath.Join(dir, "n1.yaml"), nil)
	if got := identify(dir); got != first {
		t.Errorf("a new file: %v became %v", first, got)
	}
	if got := scan(dir).folder; got != first {
		t.Errorf("opened: %v is %v", first, got)
	}
	if first.born == 0 {
		t.Skip("this file system knows no time of birth")
	}
	time.Sleep(20 * time.Millisecond) // more than the kernel's clock tick, by which births are told apart
	must(t, os.RemoveAll(dir))
	must(t, os.Mkdir(dir, 0o755))
	if got := identify(dir); got == first {
		t.Errorf("recreated: still %v", got)
	}
}
