package main

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"path"
)

// archive writes an initial file system: a cpio archive in the "newc" format, as the kernel unpacks
// it (Documentation/driver-api/early-userspace/buffer-format.rst). Paths are absolute; the
// folders above one are made as needed, and what is there already is not added again. The first
// error sticks, and Close returns it.
type archive struct {
	out   *bufio.Writer
	inode uint32
	added map[string]bool
	err   error
}

func newArchive(out io.Writer) *archive {
	return &archive{out: bufio.NewWriter(out), added: map[string]bool{"/": true}}
}

// Types and bits of a mode in cpio, which are those of stat(2).
const (
	modeDir    = 0o040000
	modeFile   = 0o100000
	modeDevice = 0o020000 // of characters
)

// Dir adds a folder.
func (a *archive) Dir(name string) { a.entry(name, modeDir|0o755, nil, 0, 0) }

// File adds a file with those permissions.
func (a *archive) File(name string, permissions fs.FileMode, content []byte) {
	a.entry(name, modeFile|uint32(permissions.Perm()), content, 0, 0)
}

// Device adds a character device.
func (a *archive) Device(name string, major, minor uint32) {
	a.entry(name, modeDevice|0o600, nil, major, minor)
}

// Close ends the archive.
func (a *archive) Close() error {
	a.record("TRAILER!!!", 0, nil, 0, 0)
	if err := a.out.Flush(); a.err == nil {
		a.err = err
	}
	return a.err
}

func (a *archive) entry(name string, mode uint32, content []byte, major, minor uint32) {
	if name = path.Clean(name); a.added[name] {
		return
	}
	a.Dir(path.Dir(name))
	a.added[name] = true
	a.record(name[1:], mode, content, major, minor)
}

// record writes the header (13 numbers of 8 hexadecimal digits after the magic one), the name and the
// content; each of the last two is filled up to a multiple of four bytes.
func (a *archive) record(name string, mode uint32, content []byte, major, minor uint32) {
	name += "\x00"
	a.inode++
	header := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.inode, mode, 0, 0, 1, 0, len(content), 0, 0, major, minor, len(name), 0)
	a.write([]byte(header + name))
	a.pad(len(header) + len(name))
	a.write(content)
	a.pad(len(content))
}

func (a *archive) pad(length int) { a.write(make([]byte, -length&3)) }

func (a *archive) write(data []byte) {
	if a.err == nil {
		_, a.err = a.out.Write(data)
	}
}
