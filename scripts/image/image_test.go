package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const dockerfile = "../../deploy/Dockerfile"

// hello builds a static program as bin/warren of a context.
func hello(t *testing.T) (context string) {
	t.Helper()
	context = t.TempDir()
	source := filepath.Join(context, "hello.go")
	text := "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n)\n\nfunc main() { fmt.Println(\"hello\", os.Args[1], os.Getenv(\"PATH\")) }\n"
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("go", "build", "-o", filepath.Join(context, "bin", "warren"), source)
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return context
}

// image is a docker-archive, taken apart as container engines do.
type image struct {
	id     string
	config struct {
		Architecture, OS string
		Config           struct{ Entrypoint, Env []string }
		RootFS           struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	layer []byte
}

func open(t *testing.T, archive []byte) image {
	t.Helper()
	files := untar(t, archive)
	var i image
	if err := json.Unmarshal(files["manifest.json"], &i.manifest); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(files[i.manifest[0].Config], &i.config); err != nil {
		t.Fatal(err)
	}
	i.id, i.layer = digest(files[i.manifest[0].Config]), files[i.manifest[0].Layers[0]]
	return i
}

func untar(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// TestImageRuns: the root file system of the repository's Dockerfile has all that its program needs.
func TestImageRuns(t *testing.T) {
	archive, id, err := build{dockerfile: dockerfile, context: hello(t), tag: "localhost/warren:test"}.run()
	if err != nil {
		t.Fatal(err)
	}
	i := open(t, archive)
	if i.id != id {
		t.Errorf("id %s, want the digest of the configuration, %s", id, i.id)
	}
	if diff := cmp.Diff([]string{digest(i.layer)}, i.config.RootFS.DiffIDs); diff != "" {
		t.Errorf("layers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"localhost/warren:test"}, i.manifest[0].RepoTags); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
	if os.Getuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("chroot needs root")
		}
		t.Skip("chroot needs root")
	}
	root := t.TempDir()
	for name, content := range untar(t, i.layer) {
		if err := os.WriteFile(filepath.Join(root, name), content, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	words := append(i.config.Config.Entrypoint, "agent")
	command := &exec.Cmd{Path: words[0], Args: words, Env: i.config.Config.Env, Dir: "/", SysProcAttr: &syscall.SysProcAttr{Chroot: root}}
	out, err := command.CombinedOutput()
	if err != nil || string(out) != "hello agent /\n" {
		t.Errorf("in the root file system: %q, %v", out, err)
	}
}

// TestImageIsReproducible: neither time nor place of a build is in the image.
func TestImageIsReproducible(t *testing.T) {
	first := hello(t)
	second := t.TempDir()
	if err := os.CopyFS(second, os.DirFS(first)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(second, "bin/warren"), 0o640); err != nil {
		t.Fatal(err)
	}
	one, _, err := build{dockerfile: dockerfile, context: first, tag: "a:b"}.run()
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := build{dockerfile: dockerfile, context: second, tag: "a:b"}.run()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one, other) {
		t.Error("two builds of the same files differ")
	}
}

func TestRootHasFolders(t *testing.T) {
	context := t.TempDir()
	if err := os.WriteFile(filepath.Join(context, "f"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := recipe{copies: []copied{{"f", "/usr/bin/b"}, {"f", "/usr/a"}}}
	root, err := r.root(context)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for tr := tar.NewReader(bytes.NewReader(root)); ; {
		header, err := tr.Next()
		if err != nil {
			break
		}
		names = append(names, header.Name)
	}
	if diff := cmp.Diff([]string{"usr/", "usr/a", "usr/bin/", "usr/bin/b"}, names); diff != "" {
		t.Errorf("root file system (-want +got):\n%s", diff)
	}
}

func TestParseRecipe(t *testing.T) {
	const begin = "# an image\n\nFROM scratch\n"
	tests := []struct{ name, text, want string }{
		{name: "no file", text: "", want: "COPY and ENTRYPOINT are missing"},
		{name: "another image below", text: "FROM golang:1.26\n", want: "line 1: the first instruction is not FROM scratch"},
		{name: "a command", text: begin + "RUN make\n", want: "line 4: RUN make: only COPY"},
		{name: "a second stage", text: begin + "COPY --from=build /w /w\n", want: "line 4: COPY --from=build /w /w: only"},
		{name: "into a folder", text: begin + "COPY bin/warren /bin/\n", want: "line 4: COPY"},
		{name: "a shell", text: begin + "ENTRYPOINT /warren\n", want: "line 4: ENTRYPOINT is not a list of words"},
		{name: "nothing to run", text: begin + "COPY a /a\n", want: "COPY and ENTRYPOINT are missing"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, err := parseRecipe(test.text); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

func TestProgramsThatWouldNotRun(t *testing.T) {
	context := t.TempDir()
	if err := os.WriteFile(filepath.Join(context, "script"), []byte("#!/bin/sh\nexec echo a program that only a shell can run\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(context, "dynamic"), shell, 0o700); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, file, entrypoint, want string }{
		{name: "not in the image", file: "dynamic", entrypoint: "/other", want: "is not copied into the image"},
		{name: "a script", file: "script", entrypoint: "/p", want: "bad magic number"},
		{name: "dynamically linked", file: "dynamic", entrypoint: "/p", want: "is not static"},
		{name: "missing", file: "missing", entrypoint: "/p", want: "no such file"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := recipe{copies: []copied{{test.file, "/p"}}, entrypoint: []string{test.entrypoint}}
			if _, err := r.architecture(context); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}
