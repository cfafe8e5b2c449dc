package wireguard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"warren/internal/cluster"
)

const (
	keyFileMode = 0o600
	keyDirMode  = 0o700
	// keyFileSize bounds what is read: a key is 44 characters and a newline.
	keyFileSize = 128
)

// LoadKey reads a private key as `warren keys generate` prints it: 44 characters of base64 and at
// most white space around them. The file must be a regular one, not a symbolic link, belong to root
// or to this user, and be closed to everybody else; each error names the file and the remedy.
// No error contains any of what the file contains. Error: fs.ErrNotExist.
func LoadKey(path string) (cluster.PrivateKey, error) {
	key, err := loadKey(path)
	if err != nil {
		return cluster.PrivateKey{}, fmt.Errorf("private key %s: %w", path, err)
	}
	return key, nil
}

// LoadOrCreateKey is LoadKey, and makes the file (0600) and its folder (0700) when there is no file;
// created says that it did. A file that is there is never written, whatever is wrong with it. Of
// several processes that create the same file at the same time one does, and all get its key.
func LoadOrCreateKey(path string) (key cluster.PrivateKey, created bool, err error) {
	key, err = loadKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		key, created, err = createKey(path)
	}
	if err != nil {
		return cluster.PrivateKey{}, false, fmt.Errorf("private key %s: %w", path, err)
	}
	return key, created, nil
}

func loadKey(path string) (cluster.PrivateKey, error) {
	// O_NONBLOCK: opening a FIFO must not wait for a writer.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return cluster.PrivateKey{}, errors.New("is a symbolic link; name the file itself, or move the file here")
	}
	if err != nil {
		return cluster.PrivateKey{}, bare(err)
	}
	defer file.Close()
	if err := checkKeyFile(file, path); err != nil {
		return cluster.PrivateKey{}, err
	}
	text, err := io.ReadAll(io.LimitReader(file, keyFileSize+1))
	if err != nil {
		return cluster.PrivateKey{}, bare(err)
	}
	key, err := cluster.ParsePrivateKey(string(bytes.TrimSpace(text)))
	if err == nil && len(text) > keyFileSize {
		err = cluster.ErrKeyFormat // who knows what comes behind it
	}
	if err != nil {
		return cluster.PrivateKey{}, fmt.Errorf("does not hold one (%w); restore it, or delete it "+
			"to get a new key, which the other nodes then have to learn", err)
	}
	return key, nil
}

// checkKeyFile looks at the open file, so that nobody can exchange it between the look and the read.
func checkKeyFile(file *os.File, path string) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return errors.New("is not a regular file")
	}
	if stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("belongs to user %d, who may read and replace it; `chown %d %s`, or delete it to get a new key",
			stat.Uid, os.Geteuid(), path)
	}
	if open := stat.Mode & 0o077; open != 0 {
		return fmt.Errorf("is open to others (mode %#o); `chmod 600 %s`, and consider the key known to them", stat.Mode&0o777, path)
	}
	return nil
}

// createKey writes a new key beside path and renames it to path if nothing is there by then. The
// loser of a race reads the winner's.
func createKey(path string) (key cluster.PrivateKey, created bool, err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, keyDirMode); err != nil {
		return key, false, err
	}
	if key, err = cluster.NewPrivateKey(); err != nil {
		return key, false, err
	}
	temporary, err := writeTemporary(dir, key)
	if err != nil {
		return key, false, err
	}
	defer os.Remove(temporary) // in vain after the rename
	err = unix.Renameat2(unix.AT_FDCWD, temporary, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) {
		key, err = loadKey(path)
		return key, false, err
	}
	if err != nil {
		return key, false, fmt.Errorf("rename the new file to it: %w", err)
	}
	return key, true, syncDir(dir)
}

// writeTemporary returns the name of a file in dir that has the key on disk.
func writeTemporary(dir string, key cluster.PrivateKey) (name string, err error) {
	file, err := os.CreateTemp(dir, ".private.key-*") // mode 0600
	if err != nil {
		return "", err
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			os.Remove(file.Name())
		}
	}()
	if err := file.Chmod(keyFileMode); err != nil { // whatever the umask took away
		return "", err
	}
	if _, err := file.WriteString(key.Reveal() + "\n"); err != nil {
		return "", err
	}
	return file.Name(), file.Sync()
}

// syncDir makes a rename in dir survive a power cut.
func syncDir(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := folder.Sync(); err != nil {
		return fmt.Errorf("make it durable: %w", err)
	}
	return nil
}

// bare drops the path from an error of package os; the caller names it once.
func bare(err error) error {
	var inPath *fs.PathError
	if errors.As(err, &inPath) {
		return inPath.Err
	}
	return err
}
