package main

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// addTool copies a program of this machine into /bin of the guest, and the libraries it is linked
// with to where it looks for them.
func addTool(guest *archive, name string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("tool %s: %w", name, err)
	}
	libraries, err := librariesOf(path)
	if err != nil {
		return fmt.Errorf("tool %s: %w", name, err)
	}
	if err := addFile(guest, "/bin/"+filepath.Base(path), path); err != nil {
		return err
	}
	for _, library := range libraries {
		if err := addFile(guest, library, library); err != nil {
			return err
		}
	}
	return nil
}

// addFile copies a file of this machine, with its permissions, through symbolic links.
func addFile(guest *archive, name, from string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	guest.File(name, info.Mode(), content)
	return nil
}

// librariesOf returns the loader and the shared libraries of a program, none if it is static.
func librariesOf(path string) ([]string, error) {
	file, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if file.Section(".interp") == nil {
		return nil, nil
	}
	output, err := exec.Command("ldd", path).Output()
	if err != nil {
		return nil, fmt.Errorf("ldd: %w", err)
	}
	return parseLdd(string(output)), nil
}

// parseLdd reads lines such as "libc.so.6 => /lib/…/libc.so.6 (0x…)" and "/lib64/ld-linux…so.2 (0x…)";
// the vdso has no file.
func parseLdd(output string) []string {
	var files []string
	for line := range strings.Lines(output) {
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "/") {
				files = append(files, word)
			}
		}
	}
	return files
}
