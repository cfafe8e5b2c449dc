package arch

import (
	"bufio"
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// module is the path in go.mod; imports that start with it are arrows inside Warren.
const module = "warren"

// source is one Go file of the module.
type source struct {
	path  string // slash-separated, from the root of the module
	set   *token.FileSet
	file  *ast.File
	lines int
}

// dir is the package's folder from the root, "internal/plan"; "." for the root itself.
func (s source) dir() string { return filepath.ToSlash(filepath.Dir(s.path)) }

// test reports whether the file is compiled for tests only.
func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

// imports returns the import paths as written.
func (s source) imports() []string {
	paths := make([]string, 0, len(s.file.Imports))
	for _, spec := range s.file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value) // the parser accepted it
		paths = append(paths, path)
	}
	return paths
}

// at returns "path:line" of a node.
func (s source) at(node ast.Node) string {
	return s.path + ":" + strconv.Itoa(s.set.Position(node.Pos()).Line)
}

// loadModule parses every Go file of this module, whatever its build tags.
func loadModule(t *testing.T) []source {
	t.Helper()
	root := filepath.Join("..", "..")
	var sources []source
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipFolder(root, path)
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		sources = append(sources, parseSource(t, filepath.ToSlash(name), string(text)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

// skipFolder passes over what the Go tool passes over: hidden folders, testdata, other modules.
func skipFolder(root, path string) error {
	name := filepath.Base(path)
	if path == root {
		return nil
	}
	if name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return fs.SkipDir
	}
	if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

func parseSource(t *testing.T, path, text string) source {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return source{path: path, set: set, file: file, lines: countLines(text)}
}

func countLines(text string) int {
	lines := 0
	for scanner := bufio.NewScanner(bytes.NewBufferString(text)); scanner.Scan(); {
		lines++
	}
	return lines
}
