package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// allowedSkip is one line of the list: tests that may skip even where every skip is a failure.
type allowedSkip struct {
	pkg    string         // import path
	test   *regexp.Regexp // the whole name of the test
	reason string         // for people
}

// readSkips reads lines of "PACKAGE TEST-REGEXP REASON…"; empty lines and lines that start with '#'
// are skipped. An error names file and line.
func readSkips(path string) ([]allowedSkip, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the allowed skips: %w", err)
	}
	var allowed []allowedSkip
	for number, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.SplitN(line, " ", 3)
		if len(fields) != 3 {
			return nil, fmt.Errorf("%s:%d: %q is not PACKAGE TEST-REGEXP REASON", path, number+1, line)
		}
		test, err := regexp.Compile("^(?:" + fields[1] + ")$")
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, number+1, err)
		}
		allowed = append(allowed, allowedSkip{pkg: fields[0], test: test, reason: fields[2]})
	}
	return allowed, nil
}

// allows reports whether the test is on the list.
func allows(allowed []allowedSkip, pkg, test string) bool {
	for _, a := range allowed {
		if a.pkg == pkg && a.test.MatchString(test) {
			return true
		}
	}
	return false
}
