package datapath

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Cleanup detaches every program and removes every pin below dir, of any version and attached either
// way, and then the folder if nothing of others is in it. It needs no other process and no intact state;
// what is gone already is no error, and it may be repeated. filters may be nil where programs were never
// attached by clsact.
func Cleanup(dir string, filters Filters, logger *slog.Logger) error {
	logger = cmp.Or(logger, slog.New(slog.DiscardHandler))
	var problems []error
	if filters != nil {
		problems = append(problems, removeAllBut(newClsact(filters, logger), nil))
	}
	problems = append(problems, removeAllBut(newTCX(dir, logger), nil))
	folders, err := mapFolders(dir)
	problems = append(problems, err)
	for _, folder := range append(folders, filepath.Join(dir, linksFolder)) {
		problems = append(problems, removeFolder(folder))
	}
	// Remove, not RemoveAll: what else is in there belongs to others.
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		problems = append(problems, fmt.Errorf("remove the folder of pins: %w", err))
	}
	return errors.Join(problems...)
}

// mapFolders returns the folders of the pinned maps of all layouts.
func mapFolders(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the folder of pins: %w", err)
	}
	var folders []string
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), mapsFolderPrefix) {
			folders = append(folders, filepath.Join(dir, entry.Name()))
		}
	}
	slices.Sort(folders)
	return folders, nil
}

// removeFolder unpins all that is in a folder of ours.
func removeFolder(folder string) error {
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("remove pins: %w", err)
	}
	return nil
}
