// Package durable replaces files so that they survive a crash and a power cut: whole, old or new.
//
//	err := durable.Replace("/var/lib/warren/snapshot", data, 0o600)
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Replace makes data the content of the file at path, in one step for whoever opens it, and on the disk
// when it returns. What an earlier try left behind goes. The folder must exist.
func Replace(path string, data []byte, mode fs.FileMode) error {
	folder, name := filepath.Split(path)
	if err := removeTemporary(folder, name); err != nil {
		return err
	}
	temporary, err := writeTemporary(folder, name, data, mode)
	if err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return SyncFolder(folder)
}

// writeTemporary writes data to a new file next to name, down to the disk, and returns its path.
func writeTemporary(folder, name string, data []byte, mode fs.FileMode) (string, error) {
	file, err := os.CreateTemp(folder, temporaryPrefix(name)+"*"+temporarySuffix)
	if err != nil {
		return "", err
	}
	_, err = file.Write(data)
	err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close())
	if err != nil {
		return "", errors.Join(err, os.Remove(file.Name()))
	}
	return file.Name(), nil
}

const temporarySuffix = ".tmp"

func temporaryPrefix(name string) string { return "." + name + "." }

func removeTemporary(folder, name string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		old := strings.HasPrefix(entry.Name(), temporaryPrefix(name)) && strings.HasSuffix(entry.Name(), temporarySuffix)
		if !old {
			continue
		}
		if err := os.Remove(filepath.Join(folder, entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// SyncFolder makes what was renamed or removed in the folder survive a power cut.
func SyncFolder(folder string) error {
	file, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
