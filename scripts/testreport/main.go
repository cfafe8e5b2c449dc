// Command testreport reads `go test -json` on standard input and prints what a person wants to see:
// the closing line of every package, the whole output of every test that failed, and each skipped
// test with its reason, so that nothing is skipped silently. It ends with one line of totals.
//
//	go test -json ./... | testreport -skips test/skips.txt -strict
//
// It exits 1 when a test failed, when no test ran and, with -strict, when a test was skipped that the
// list of allowed skips does not name.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	skips := flag.String("skips", "", "file of allowed skips; without it none is allowed")
	strict := flag.Bool("strict", false, "fail for a skip that is not allowed")
	flag.Parse()
	ok, err := run(os.Stdin, os.Stdout, *skips, *strict)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run reports whether the tests that in tells of are good.
func run(in io.Reader, out io.Writer, skips string, strict bool) (bool, error) {
	var allowed []allowedSkip
	if skips != "" {
		var err error
		if allowed, err = readSkips(skips); err != nil {
			return false, err
		}
	}
	report := newReport(out, allowed, strict)
	if err := report.read(in); err != nil {
		return false, err
	}
	return report.close(), nil
}
