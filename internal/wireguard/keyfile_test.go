package wireguard

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"warren/internal/cluster"
)

func TestCreateKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "warren", "private.key")
	key, created, err := LoadOrCreateKey(path)
	if err != nil || !created || key.IsZero() {
		t.Fatalf("LoadOrCreateKey: zero %v, created %v, %v", key.IsZero(), created, err)
	}
	for name, want := range map[string]fs.FileMode{path: 0o600, filepath.Dir(path): 0o700 | fs.ModeDir} {
		if info, err := os.Stat(name); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want mode %v", name, info.Mode(), err, want)
		}
	}
	again, created, err := LoadOrCreateKey(path)
	if err != nil || created || again != key {
		t.Errorf("the second time: same key %v, created %v, %v", again == key, created, err)
	}
	if loaded, err := LoadKey(path); err != nil || loaded != key {
		t.Errorf("LoadKey: same key %v, %v", loaded == key, err)
	}
	assertAlone(t, path)
}

func TestCreateKeyUnderAnyUmask(t *testing.T) {
	for _, mask := range []int{0, 0o777} {
		old := syscall.Umask(mask)
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "private.key")
		_, _, err := LoadOrCreateKey(path)
		syscall.Umask(old)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("umask %#o: mode %v, %v; want 0600", mask, info.Mode(), err)
		}
	}
}

func TestConcurrentCreation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "private.key")
	var wait sync.WaitGroup
	keys := make([]cluster.PrivateKey, 16)
	creations := make([]bool, len(keys))
	for i := range keys {
		wait.Go(func() {
			var err error
			if keys[i], creations[i], err = LoadOrCreateKey(path); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	creators := 0
	for i, key := range keys {
		if key != keys[0] {
			t.Error("two processes have different keys")
		}
		if creations[i] {
			creators++
		}
	}
	if creators != 1 {
		t.Errorf("%d of them say that they created it, want 1", creators)
	}
	assertAlone(t, path)
}

// assertAlone: no temporary file with a key in it stays behind.
func assertAlone(t *testing.T, path string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v (%v), want only the key", entries, err)
	}
}

func TestBadKeyFile(t *testing.T) {
	good, err := cluster.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	text := good.Reveal()
	write := func(content string, mode fs.FileMode) func(string) error {
		return func(path string) error {
			return errors.Join(os.WriteFile(path, []byte(content), mode), os.Chmod(path, mode))
		}
	}
	tests := []struct {
		name  string
		make  func(path string) error
		wants []string
	}{
		{"open to the group", write(text+"\n", 0o640), []string{"mode 0640", "chmod 600"}},
		{"open to the world", write(text+"\n", 0o604), []string{"mode 0604", "chmod 600"}},
		{"writable by the world", write(text+"\n", 0o602), []string{"chmod 600"}},
		{"empty", write("", 0o600), []string{"restore it, or delete it"}},
		{"half written", write(text[:20], 0o600), []string{"restore it, or delete it"}},
		{"two keys", write(text+"\n"+text+"\n", 0o600), []string{"restore it, or delete it"}},
		{"all zero", write(strings.Repeat("A", 43)+"=", 0o600), []string{"all-zero key", "restore it, or delete it"}},
		{"very long", write(text+strings.Repeat(" ", 1<<20), 0o600), []string{"restore it, or delete it"}},
		{"symbolic link", func(path string) error {
			return errors.Join(write(text, 0o600)(path+".real"), os.Symlink(path+".real", path))
		}, []string{"symbolic link"}},
		{"symbolic link to nothing", func(path string) error { return os.Symlink(path+".real", path) }, []string{"symbolic link"}},
		{"folder", func(path string) error { return os.Mkdir(path, 0o700) }, []string{"not a regular file"}},
		{"FIFO", func(path string) error { return syscall.Mkfifo(path, 0o600) }, []string{"not a regular file"}},
		{"another user's", func(path string) error {
			return errors.Join(write(text, 0o600)(path), os.Chown(path, 12345, 12345))
		}, []string{"user 12345", "chown"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "private.key")
			err := test.make(path)
			if errors.Is(err, syscall.EPERM) {
				t.Skip("only root can give files away")
			}
			if err != nil {
				t.Fatal(err)
			}
			before := describe(t, path)
			_, created, err := LoadOrCreateKey(path)
			if err == nil || created {
				t.Fatalf("accepted (created %v)", created)
			}
			for _, want := range append(test.wants, path) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), text[:20]) {
				t.Errorf("error %q has the key in it", err)
			}
			if after := describe(t, path); after != before {
				t.Errorf("the file was changed from %s to %s", before, after)
			}
		})
	}
}

// describe returns what LoadOrCreateKey must not change.
func describe(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().String() + info.ModTime().String()
}

func TestLoadKeyDoesNotCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "private.key")
	if _, err := LoadKey(path); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("LoadKey: %v, want %v with the path", err, fs.ErrNotExist)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is there: %v", err)
	}
}

func TestFolderThatCannotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := LoadOrCreateKey(filepath.Join(file, "private.key")); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("LoadOrCreateKey: %v, want %v", err, syscall.ENOTDIR)
	}
}
