package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// build is one image to be built.
type build struct {
	dockerfile, context, tag string
}

// run returns the image as a docker-archive, and its id, which is the digest of its configuration.
func (b build) run() (archive []byte, id string, err error) {
	text, err := os.ReadFile(b.dockerfile)
	if err != nil {
		return nil, "", err
	}
	r, err := parseRecipe(string(text))
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", b.dockerfile, err)
	}
	architecture, err := r.architecture(b.context)
	if err != nil {
		return nil, "", err
	}
	root, err := r.root(b.context)
	if err != nil {
		return nil, "", err
	}
	config := r.config(architecture, digest(root))
	manifest := marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{b.tag}, "Layers": []string{"layer.tar"}}})
	archive, err = pack([]entry{{"manifest.json", 0o644, manifest}, {"config.json", 0o644, config}, {"layer.tar", 0o644, root}})
	return archive, digest(config), err
}

// architectures are those that Warren has programs for, by Go's names, which are those of images as well.
var architectures = map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"}

// architecture is that of the program that the image runs. A program that needs a dynamic linker would not run.
func (r recipe) architecture(context string) (string, error) {
	i := slices.IndexFunc(r.copies, func(c copied) bool { return c.to == r.entrypoint[0] })
	if i < 0 {
		return "", fmt.Errorf("ENTRYPOINT %s is not copied into the image", r.entrypoint[0])
	}
	file := filepath.Join(context, r.copies[i].from)
	program, err := elf.Open(file)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", file, err)
	}
	defer program.Close()
	for _, segment := range program.Progs {
		if segment.Type == elf.PT_INTERP {
			return "", fmt.Errorf("%s is not static; build it with CGO_ENABLED=0", file)
		}
	}
	name, ok := architectures[program.Machine]
	if !ok {
		return "", fmt.Errorf("%s is for %v, which Warren is not built for", file, program.Machine)
	}
	return name, nil
}

// root returns the root file system as a tar archive.
func (r recipe) root(context string) ([]byte, error) {
	var entries []entry
	for _, c := range r.copies {
		content, err := os.ReadFile(filepath.Join(context, c.from))
		if err != nil {
			return nil, err
		}
		for folder := path.Dir(c.to); folder != "/"; folder = path.Dir(folder) {
			entries = append(entries, entry{name: folder[1:] + "/", mode: 0o755})
		}
		entries = append(entries, entry{c.to[1:], 0o755, content})
	}
	// Folders come before what is in them, and once.
	slices.SortStableFunc(entries, func(a, b entry) int { return bytes.Compare([]byte(a.name), []byte(b.name)) })
	entries = slices.CompactFunc(entries, func(a, b entry) bool { return a.name == b.name })
	return pack(entries)
}

// config is the image's configuration (OCI image specification, config.md).
func (r recipe) config(architecture, layer string) []byte {
	return marshal(map[string]any{
		"architecture": architecture, "os": "linux", "created": time.Unix(0, 0).UTC(),
		"config":  map[string]any{"Entrypoint": r.entrypoint, "Env": r.env, "WorkingDir": "/"},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{layer}},
		"history": []map[string]any{{"created": time.Unix(0, 0).UTC(), "created_by": "deploy/Dockerfile"}},
	})
}

// entry of a tar archive; a folder's name ends with a slash.
type entry struct {
	name    string
	mode    int64
	content []byte
}

// pack makes a tar archive that depends on nothing but the entries: they are root's, and have no time.
func pack(entries []entry) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.content)), ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("pack %s: %w", e.name, err)
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, fmt.Errorf("pack %s: %w", e.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func digest(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }

// marshal is for values that have a form in JSON. Its keys are sorted.
func marshal(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return text
}
