package main

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"warren/test/vm/job"
)

// image is the content of an initial file system.
type image struct {
	kernel *kernel
	// init is the path of the static program that the kernel runs first.
	init string
	// tools are programs of this machine, by name or path.
	tools []string
	// program is what the guest is for: its path on this machine and the arguments.
	program []string
	// dir is the working folder: everything in it is copied to the same place in the guest.
	dir string
	// env is the program's environment.
	env []string
}

// largestFile bounds what is copied from the working folder: more than that is no test data.
const largestFile = 16 << 20

func (i image) write(out io.Writer) error {
	modules, err := i.kernel.load(wanted)
	if err != nil {
		return err
	}
	guest := newArchive(out)
	guest.Device("/dev/console", 5, 1) // opened for init before it can mount anything
	if err := addFile(guest, job.Init, i.init); err != nil {
		return err
	}
	task := job.Job{Env: i.env, Dir: i.dir}
	for _, m := range modules {
		path := "/lib/modules/" + m.name + ".ko"
		guest.File(path, 0o644, m.code)
		task.Modules = append(task.Modules, path)
	}
	for _, tool := range i.tools {
		if err := addTool(guest, tool); err != nil {
			return err
		}
	}
	if err := addFolder(guest, i.dir); err != nil {
		return err
	}
	program := "/bin/" + filepath.Base(i.program[0])
	if err := addFile(guest, program, i.program[0]); err != nil {
		return err
	}
	task.Args = append([]string{program}, i.program[1:]...)
	text, err := json.Marshal(task)
	if err != nil {
		return err
	}
	guest.File(job.Path, 0o644, text)
	return guest.Close()
}

// addFolder copies a folder of the repository with all below it, hidden files aside: the tests of a
// package find their testdata where the Go tool runs them.
func addFolder(guest *archive, dir string) error {
	guest.Dir(dir)
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if strings.HasPrefix(entry.Name(), ".") && entry.IsDir() {
			return fs.SkipDir
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if info.Size() > largestFile {
			return nil
		}
		return addFile(guest, path, path)
	})
}

// environment is what the program sees: what is said about tests and Warren, and where things are.
func environment() []string {
	env := []string{"PATH=/bin:/sbin:/usr/bin:/usr/sbin", "HOME=/", "TMPDIR=/tmp", "LANG=C"}
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if name == "CI" || name == "GOTRACEBACK" || strings.HasPrefix(name, "WARREN_") {
			env = append(env, pair)
		}
	}
	return append(env, job.InGuest+"=1")
}

// writeFile writes the image into a file of the folder and returns its path.
func (i image) writeFile(dir string) (string, error) {
	file, err := os.Create(filepath.Join(dir, "initramfs"))
	if err != nil {
		return "", err
	}
	if err := i.write(file); err != nil {
		file.Close()
		return "", fmt.Errorf("write the initial file system: %w", err)
	}
	return file.Name(), file.Close()
}
