package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// TestReport reads recorded events (testdata/*.json) and compares what is printed with *.golden.
func TestReport(t *testing.T) {
	tests := []struct {
		name, events, skips string
		strict, ok          bool
	}{
		{name: "all-pass", events: "pass.json", ok: true},
		{name: "a-skip-is-shown", events: "skip.json", ok: true},
		{name: "a-skip-fails-when-strict", events: "skip.json", strict: true},
		{name: "an-allowed-skip-does-not", events: "skip.json", skips: "skips.txt", strict: true, ok: true},
		{name: "failures-of-every-kind", events: "fail.json"},
		{name: "loud-failures-in-short", events: "loud.json"},
		{name: "killed-in-the-middle", events: "killed.json"},
		{name: "no-test-ran", events: "none.json"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			events, err := os.Open(filepath.Join("testdata", test.events))
			if err != nil {
				t.Fatal(err)
			}
			defer events.Close()
			skips := test.skips
			if skips != "" {
				skips = filepath.Join("testdata", skips)
			}
			var out bytes.Buffer
			ok, err := run(events, &out, skips, test.strict)
			if err != nil {
				t.Fatal(err)
			}
			if ok != test.ok {
				t.Errorf("ok = %t, want %t", ok, test.ok)
			}
			compareGolden(t, out.String())
		})
	}
}

// compareGolden holds got against testdata/<name of the subtest>.golden.
func compareGolden(t *testing.T, got string) {
	t.Helper()
	path := filepath.Join("testdata", filepath.Base(t.Name())+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

// TestReadSkips names file and line of what it refuses.
func TestReadSkips(t *testing.T) {
	tests := []struct{ name, text, problem string }{
		{name: "comments and empty lines", text: "# why\n\nwarren/test/vm Test.* needs the guest\n"},
		{name: "no reason", text: "\nwarren/test/vm Test.*\n", problem: `:2: "warren/test/vm Test.*" is not PACKAGE TEST-REGEXP REASON`},
		{name: "bad pattern", text: "p Test( why", problem: ":1: error parsing regexp"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "skips.txt")
			if err := os.WriteFile(path, []byte(test.text), 0o644); err != nil {
				t.Fatal(err)
			}
			_, err := readSkips(path)
			switch {
			case test.problem == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.problem != "" && (err == nil || !strings.Contains(err.Error(), test.problem)):
				t.Errorf("error %v, want one with %q", err, test.problem)
			}
		})
	}
}
