package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warren/internal/config"
)

func TestRemoveFiles(t *testing.T) {
	ours := []string{
		"run/agent.sock", "run/agent.lock", "run/launcher.sock", "run/tunnel-warren0.log", "run/tunnel-warren0b.log.old",
		"run/wireguard/warren0.sock", "run/wireguard/warren0d.sock",
	}
	kept := []string{"state/private.key", "state/private.2.key", "state/snapshot.json", "state/mode"}
	tests := []struct {
		name   string
		others []string
		purge  bool
		want   []string
	}{
		{name: "what survives a reboot stays", want: kept},
		{name: "purge", purge: true},
		{name: "what others have there stays", purge: true,
			others: []string{"run/wireguard/wg0.sock", "state/notes"}, want: []string{"run/wireguard/wg0.sock", "state/notes"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, list := range [][]string{ours, kept, test.others} {
				for _, path := range list {
					write(t, filepath.Join(dir, path))
				}
			}
			c := config.Default()
			c.RunDir, c.StateDir = filepath.Join(dir, "run"), filepath.Join(dir, "state")
			if err := removeFiles(CleanupOptions{Config: c, Purge: test.purge}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tree(test.want), left(t, dir)); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
		})
	}
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// tree is the files with the folders that they are in.
func tree(files []string) map[string]bool {
	all := map[string]bool{}
	for _, path := range files {
		for ; path != "."; path = filepath.Dir(path) {
			all[path] = true
		}
	}
	return all
}

// left is what is in a folder, by path from it.
func left(t *testing.T, dir string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		all[relative] = true
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
