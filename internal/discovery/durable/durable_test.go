package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "record")
	for _, test := range []struct {
		name, data string
		mode       fs.FileMode
	}{{"a new file", "one", 0o644}, {"another content and mode", "two", 0o600}, {"nothing", "", 0o644}} {
		if err := Replace(path, []byte(test.data), test.mode); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		data, err := os.ReadFile(path)
		if err != nil || string(data) != test.data {
			t.Errorf("%s: %q, %v", test.name, data, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != test.mode {
			t.Errorf("%s: mode %v, %v", test.name, info.Mode(), err)
		}
	}
}

// TestReplaceCleansUp: what a try that was killed left behind goes, and nothing of others.
func TestReplaceCleansUp(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".record.123.tmp", ".record2.123.tmp", ".record.123", "record.tmp"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Replace(filepath.Join(dir, "record"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if diff := cmp.Diff([]string{".record.123", ".record2.123.tmp", "record", "record.tmp"}, names); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestReplaceInNoFolder(t *testing.T) {
	err := Replace(filepath.Join(t.TempDir(), "none", "record"), []byte("x"), 0o600)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
