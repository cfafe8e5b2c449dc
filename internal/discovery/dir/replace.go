package dir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// replaceFile makes data the content of a file so that every reader finds the old content or the new
// one, also after a power cut. Temporary files begin with a dot; those that an interrupted run left are
// removed.
func replaceFile(path string, data []byte) error {
	folder, name := filepath.Split(path)
	if err := removeTemporary(folder, name); err != nil {
		return err
	}
	temporary, err := writeTemporary(folder, name, data)
	if err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return syncFolder(folder)
}

// writeTemporary writes data to a new file next to name, down to the disk, and returns its path.
func writeTemporary(folder, name string, data []byte) (string, error) {
	file, err := os.CreateTemp(folder, temporaryPrefix(name)+"*"+temporarySuffix)
	if err != nil {
		return "", err
	}
	_, err = file.Write(data)
	err = errors.Join(err, file.Chmod(0o644), file.Sync(), file.Close())
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

// syncFolder makes the names in a folder last. File systems that cannot (EINVAL) do it by themselves.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := folder.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return nil
}
