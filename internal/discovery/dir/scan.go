package dir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"warren/internal/discovery"
	"warren/internal/discovery/record"
)

// scan reads the folder. Every file is read every time: the time stamps of network file systems are no
// proof that nothing changed, and a thousand records are half a megabyte.
func scan(path string) snapshot {
	const attempts = 3
	for range attempts {
		snap := scanOnce(path)
		if snap.lost != nil || snap.folder == identify(path) {
			return snap
		}
	}
	return lostSnapshot(path, errors.New("the folder is being replaced again and again"))
}

// scanOnce reads the folder once; if it is replaced meanwhile, files may come from both.
func scanOnce(path string) snapshot {
	folder, err := os.Open(path)
	if err != nil {
		return lostSnapshot(path, err)
	}
	defer folder.Close()
	snap := snapshot{path: path, folder: identifyOpen(folder), files: map[string]content{}}
	entries, err := folder.ReadDir(-1)
	if err != nil {
		return lostSnapshot(path, err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if !isRecord(name) && name != APIServerFile {
			continue
		}
		c, exists := readRecord(filepath.Join(path, name))
		switch {
		case !exists:
		case name == APIServerFile:
			snap.apiServers = &c
		default:
			snap.files[name] = c
		}
	}
	return snap
}

func lostSnapshot(path string, err error) snapshot {
	return snapshot{path: path, lost: &discovery.Problem{
		Where:   path,
		Message: "the folder cannot be read: " + cause(err).Error(),
		Remedy:  folderRemedy(err) + "; the records of before are kept meanwhile",
	}}
}

func folderRemedy(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "create it, or mount the file system that has it"
	case errors.Is(err, fs.ErrPermission):
		return "let warren read it"
	case errors.Is(err, syscall.ENOTDIR):
		return "put a folder in its place"
	}
	return "repair the file system that has it"
}

// identify returns the identity of the folder at path, zero when there is none.
func identify(path string) identity { return statx(unix.AT_FDCWD, path, 0) }

func identifyOpen(folder *os.File) identity { return statx(int(folder.Fd()), "", unix.AT_EMPTY_PATH) }

func statx(dirfd int, path string, flags int) identity {
	var st unix.Statx_t
	if err := unix.Statx(dirfd, path, flags, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return identity{}
	}
	id := identity{device: unix.Mkdev(st.Dev_major, st.Dev_minor), inode: st.Ino}
	if st.Mask&unix.STATX_BTIME != 0 {
		id.born = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return id
}

// readRecord reads one file; exists is false when it went away since the folder was listed.
func readRecord(path string) (c content, exists bool) {
	data, err := readRegular(path)
	if err == nil {
		return content{data: data}, true
	}
	if _, gone := os.Lstat(path); errors.Is(gone, fs.ErrNotExist) {
		return content{}, false
	}
	return content{unreadable: &discovery.Problem{
		Where:   path,
		Message: "the file cannot be read: " + cause(err).Error(),
		Remedy:  fileRemedy(err),
	}}, true
}

var (
	errNotRegular = errors.New("not a regular file")
	errTooLarge   = fmt.Errorf("more than %d bytes", record.MaxSize)
)

// readRegular reads a file that is one, also through symbolic links, and neither waits for a writer
// (a named pipe) nor reads what is too large to be a record.
func readRegular(path string) ([]byte, error) {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil, firstError(err, errNotRegular) // opening a device may already do something
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, firstError(err, errNotRegular)
	}
	if info.Size() > record.MaxSize {
		return nil, errTooLarge
	}
	data, err := io.ReadAll(io.LimitReader(file, record.MaxSize+1))
	if err == nil && len(data) > record.MaxSize { // it grew
		return nil, errTooLarge
	}
	return data, err
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func fileRemedy(err error) string {
	switch {
	case errors.Is(err, errNotRegular), errors.Is(err, errTooLarge):
		return "remove it; a record is a small file"
	case errors.Is(err, syscall.ELOOP):
		return "remove the symbolic links that lead in a circle"
	case errors.Is(err, fs.ErrNotExist):
		return "remove the symbolic link, or restore what it leads to"
	case errors.Is(err, fs.ErrPermission):
		return "let warren read it"
	}
	return "repair the file system that has it"
}

// cause returns what is left of an error of package os without the call and the path, which Where has.
func cause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
