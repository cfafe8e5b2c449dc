package arch

import (
	"go/ast"
	"slices"
	"testing"
)

// TestCompass prints how long functions and files are. The aims (CONTRIBUTING.md) are a compass, not
// a gate: the test never fails for them.
//
//	go test -v -run Compass ./internal/arch
func TestCompass(t *testing.T) {
	var functions, files []int
	var code, tests int
	for _, s := range loadModule(t) {
		if ast.IsGenerated(s.file) {
			continue
		}
		if s.test() {
			tests += s.lines
			continue
		}
		code += s.lines
		files = append(files, s.lines)
		functions = append(functions, functionLines(s)...)
	}
	t.Logf("functions: median %d lines (aim 12), p90 %d (aim 40)", percentile(functions, 50), percentile(functions, 90))
	t.Logf("files: p90 %d lines (aim 400)", percentile(files, 90))
	t.Logf("lines: code %d, tests %d", code, tests)
}

func functionLines(s source) []int {
	var lengths []int
	for _, declaration := range s.file.Decls {
		if f, ok := declaration.(*ast.FuncDecl); ok {
			lengths = append(lengths, s.set.Position(f.End()).Line-s.set.Position(f.Pos()).Line+1)
		}
	}
	return lengths
}

// percentile returns the value below which p of 100 values lie; 0 of no values.
func percentile(values []int, p int) int {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(len(values)*p/100, len(values)-1)]
}
