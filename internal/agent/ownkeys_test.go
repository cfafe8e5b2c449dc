package agent

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEpochOfAKeyFile(t *testing.T) {
	for name, want := range map[string]uint32{
		"private.key": 1, "private.2.key": 2, "private.4294967295.key": 4294967295,
		"private.1.key": 0, "private.02.key": 0, "private.-2.key": 0, "private..key": 0, "private.4294967296.key": 0,
		".private.key-123": 0, "private.2.key~": 0, "snapshot.json": 0, "private.2": 0,
	} {
		if got, ok := epochOf(name); ok != (want != 0) || ok && got != want {
			t.Errorf("%s: epoch %d, %t", name, got, ok)
		}
	}
}

// TestOwnKeys: a rotation is told from the files alone, whatever it was interrupted at.
func TestOwnKeys(t *testing.T) {
	epochs := func(keys []ownKey) (list []uint32) {
		for _, key := range keys {
			list = append(list, key.epoch)
		}
		return list
	}
	for _, test := range []struct {
		name   string
		files  []uint32 // epochs
		remove uint32   // what is older, before loading
		want   []uint32
		left   []string
	}{
		{"a new node makes its first key", nil, 0, []uint32{1}, []string{"private.key"}},
		{"one key", []uint32{7}, 0, []uint32{7}, []string{"private.7.key"}},
		{"a rotation has begun", []uint32{1, 2}, 0, []uint32{1, 2}, []string{"private.2.key", "private.key"}},
		{"a rotation is over", []uint32{1, 2}, 2, []uint32{2}, []string{"private.2.key"}},
		{"an old key that somebody restored is passed over", []uint32{1, 2, 3}, 0, []uint32{2, 3}, []string{"private.2.key", "private.3.key", "private.key"}},
		{"and goes with the next rotation", []uint32{1, 2, 3}, 3, []uint32{3}, []string{"private.3.key"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			keys := ownKeys{t.TempDir()}
			for _, epoch := range test.files {
				if _, err := keys.make(epoch); err != nil {
					t.Fatal(err)
				}
			}
			if err := keys.remove(test.remove); err != nil {
				t.Fatal(err)
			}
			loaded, err := keys.load()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, epochs(loaded)); diff != "" {
				t.Errorf("keys (-want +got):\n%s", diff)
			}
			again, err := keys.load()
			if err != nil || !slices.Equal(again, loaded) {
				t.Errorf("other keys when they are read again, %v", err)
			}
			entries, _ := os.ReadDir(keys.dir)
			var left []string
			for _, entry := range entries {
				left = append(left, entry.Name())
			}
			if diff := cmp.Diff(test.left, left); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

func TestKeysThatCannotBeReadAreNotReplaced(t *testing.T) {
	keys := ownKeys{t.TempDir()}
	if _, err := keys.make(2); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(keys.dir, keyFileEpoch1), []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := keys.load(); err == nil {
		t.Error("a key file without a key is passed over")
	}
}
