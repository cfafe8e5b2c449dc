package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// wanted are the modules that the tests need. What they depend on is found out, what the kernel has
// built in is left out. There is no modprobe in the guest: what is not here is not there.
var wanted = []string{
	"veth", "bridge", "8021q", "bonding", "dummy", "vrf", "tun", "vxlan", "geneve", "wireguard",
	"sch_ingress", "cls_bpf", "tcp_diag",
}

// kernel is an unpacked Debian kernel package.
type kernel struct {
	image   string
	modules map[string]string // name → path of the .ko or .ko.xz
	builtin map[string]bool
}

// openKernel reads the folder that `dpkg -x` made of a package.
func openKernel(dir string) (*kernel, error) {
	images, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return nil, fmt.Errorf("%s: %d kernel images in boot/, want one", dir, len(images))
	}
	k := &kernel{image: images[0], modules: map[string]string{}, builtin: map[string]bool{}}
	err = filepath.WalkDir(filepath.Join(dir, "lib", "modules"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name, ok := moduleName(path); ok {
			k.modules[name] = path
		}
		if filepath.Base(path) != "modules.builtin" {
			return nil
		}
		list, err := os.ReadFile(path)
		for line := range strings.Lines(string(list)) {
			name, _ := moduleName(strings.TrimSpace(line))
			k.builtin[name] = true
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the kernel's modules: %w", err)
	}
	return k, nil
}

// moduleName returns the name that the kernel shows: without folder and ending, "_" for "-".
func moduleName(path string) (string, bool) {
	name, ok := strings.CutSuffix(strings.TrimSuffix(filepath.Base(path), ".xz"), ".ko")
	return strings.ReplaceAll(name, "-", "_"), ok
}

// module is the code of a kernel module.
type module struct {
	name string
	code []byte
}

// load returns the modules of those names and all they depend on, in the order in which to load them.
// Debian's package has no modules.dep (its installation would make it), so the modules themselves
// are asked.
func (k *kernel) load(names []string) ([]module, error) {
	code := map[string][]byte{}
	order, err := loadOrder(names, func(name string) (needs []string, err error) {
		if k.builtin[name] {
			return nil, nil
		}
		if code[name], err = k.read(name); err != nil {
			return nil, err
		}
		return dependencies(code[name])
	})
	if err != nil {
		return nil, err
	}
	var modules []module
	for _, name := range order {
		if !k.builtin[name] {
			modules = append(modules, module{name, code[name]})
		}
	}
	return modules, nil
}

// loadOrder returns the names and all they need, directly or not, each once and after what it needs.
func loadOrder(names []string, needs func(name string) ([]string, error)) ([]string, error) {
	var order []string
	visited := map[string]bool{}
	var visit func(name string) error
	visit = func(name string) error {
		if visited[name] {
			return nil
		}
		visited[name] = true
		needed, err := needs(name)
		if err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		for _, other := range needed {
			if err := visit(other); err != nil {
				return fmt.Errorf("module %s: %w", name, err)
			}
		}
		order = append(order, name)
		return nil
	}
	for _, name := range names {
		if err := visit(name); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// read returns a module's code, decompressed.
func (k *kernel) read(name string) ([]byte, error) {
	path, ok := k.modules[name]
	switch {
	case !ok:
		return nil, errors.New("the kernel does not have it")
	case !strings.HasSuffix(path, ".xz"):
		return os.ReadFile(path)
	}
	code, err := exec.Command("xz", "--decompress", "--stdout", path).Output()
	if err != nil {
		return nil, fmt.Errorf("decompress %s: %w", path, err)
	}
	return code, nil
}

// dependencies returns the names of the modules that one needs, from its .modinfo section.
func dependencies(code []byte) ([]string, error) {
	file, err := elf.NewFile(bytes.NewReader(code))
	if err != nil {
		return nil, err
	}
	section := file.Section(".modinfo")
	if section == nil {
		return nil, errors.New("no .modinfo section")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	return parseDepends(string(info)), nil
}

// parseDepends reads "depends=a,b" among the lines, each ended by a NUL, of a .modinfo section.
func parseDepends(info string) []string {
	for line := range strings.SplitSeq(info, "\x00") {
		if list, ok := strings.CutPrefix(line, "depends="); ok {
			return strings.FieldsFunc(strings.ReplaceAll(list, "-", "_"), func(r rune) bool { return r == ',' })
		}
	}
	return nil
}
