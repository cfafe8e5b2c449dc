package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// event is one line of `go test -json` (go doc test2json).
type event struct {
	Action      string
	Package     string
	ImportPath  string // instead of Package for the output of a build
	Test        string
	Output      string
	FailedBuild string
}

// name is what the output of one test is collected under.
type name struct{ pkg, test string }

func compareNames(a, b name) int {
	return cmp.Or(strings.Compare(a.pkg, b.pkg), strings.Compare(a.test, b.test))
}

// skip is a test that did not run.
type skip struct {
	name
	reason  string
	allowed bool
}

// report collects what go test says.
type report struct {
	out     io.Writer
	allowed []allowedSkip
	strict  bool

	output map[name][]string // of what has not ended yet
	failed map[string]bool   // packages with a failed test
	skips  []skip
	heads  []string // of what failed: its name, and beginnings of what it said
	counts struct{ passed, failed int }
}

func newReport(out io.Writer, allowed []allowedSkip, strict bool) *report {
	return &report{out: out, allowed: allowed, strict: strict, output: map[name][]string{}, failed: map[string]bool{}}
}

// read consumes the events. A line that is not an event is the Go tool speaking, and is printed.
func (r *report) read(in io.Reader) error {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, 16<<20)
	for scanner.Scan() {
		var e event
		if json.Unmarshal(scanner.Bytes(), &e) != nil || e.Action == "" {
			fmt.Fprintln(r.out, scanner.Text())
			continue
		}
		r.take(e)
	}
	if err := scanner.Err(); err != nil {
		return fmt.Errorf("read the events of go test: %w", err)
	}
	return nil
}

func (r *report) take(e event) {
	at := name{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		r.takeOutput(at, e.Output)
	case "pass":
		if e.Test != "" {
			r.counts.passed++
		}
		delete(r.output, at)
	case "skip":
		if e.Test != "" {
			r.skips = append(r.skips, skip{at, reasonOf(r.output[at]), allows(r.allowed, at.pkg, at.test)})
		}
		delete(r.output, at)
	case "fail":
		r.fail(at)
	}
}

// takeOutput prints the closing line of a package at once and keeps everything else until it is
// known whether it matters.
func (r *report) takeOutput(at name, line string) {
	if at.test == "" && (line == "PASS\n" || line == "FAIL\n") {
		return // the closing line says it again
	}
	if at.test == "" && closing(line) {
		fmt.Fprint(r.out, line)
		return
	}
	r.output[at] = append(r.output[at], line)
}

// fail prints what the test, or the package outside its tests, had said. A package that fails
// without a failed test (it did not build, it panicked, it timed out) counts as one.
func (r *report) fail(at name) {
	if at.test != "" || !r.failed[at.pkg] {
		r.counts.failed++
	}
	r.failed[at.pkg] = true
	if lines := r.output[at]; len(lines) > 0 {
		fmt.Fprintf(r.out, "\n=== %s %s\n%s", at.pkg, at.test, strings.Join(lines, ""))
		r.heads = append(r.heads, headsOf(at, lines)...)
	}
	delete(r.output, at)
}

// close prints the skipped tests, once more the failed ones in short, and the totals, and reports whether all is well.
func (r *report) close() bool {
	refused := 0
	for _, s := range r.skips {
		verdict := "skipped"
		if !s.allowed && r.strict {
			verdict = "SKIPPED, not on the list of allowed skips"
			refused++
		}
		fmt.Fprintf(r.out, "%s: %s %s: %s\n", verdict, s.pkg, s.test, s.reason)
	}
	for _, line := range r.heads {
		fmt.Fprint(r.out, line)
	}
	r.closeUnended()
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.counts.passed, r.counts.failed+refused, len(r.skips)-refused)
	return r.counts.failed+refused == 0 && r.counts.passed > 0
}

// closeUnended counts as failed, and prints the last line of, each test that never ended: go test
// was killed, or the package died under it.
func (r *report) closeUnended() {
	for _, at := range slices.SortedFunc(maps.Keys(r.output), compareNames) {
		if at.test != "" {
			r.counts.failed++
			lines := r.output[at]
			fmt.Fprintf(r.out, "unended: %s %s: %s", at.pkg, at.test, lines[len(lines)-1])
		}
	}
}

// closing reports whether the line is the one with which go test ends a package.
func closing(line string) bool {
	for _, prefix := range []string{"ok  \t", "FAIL\t", "?   \t"} {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

// reasonOf returns what a skipped test said last, without file and line.
func reasonOf(output []string) string {
	for i := len(output) - 1; i >= 0; i-- {
		line := strings.TrimSpace(output[i])
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		if _, reason, ok := strings.Cut(line, ".go:"); ok {
			_, line, _ = strings.Cut(reason, ": ")
		}
		return line
	}
	return "no reason given"
}
