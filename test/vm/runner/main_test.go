package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestAttempt(t *testing.T) {
	tests := []struct {
		name string
		runs []outcome
		err  error
		// want is the last outcome, used how many runs it took.
		want outcome
		used int
	}{
		{name: "it ends well", runs: []outcome{{end: ended}}, want: outcome{end: ended}, used: 1},
		{name: "a failed program is not run again", runs: []outcome{{end: ended, code: 1}}, want: outcome{end: ended, code: 1}, used: 1},
		{name: "the guest dies once", runs: []outcome{{end: died}, {end: ended}}, want: outcome{end: ended}, used: 2},
		{name: "the guest dies again", runs: []outcome{{end: died}, {end: died}}, want: outcome{end: died}, used: 2},
		{name: "it is late", runs: []outcome{{end: late}}, want: outcome{end: late}, used: 1},
		{name: "there is no qemu", runs: []outcome{{}}, err: errors.New("start the virtual machine"), used: 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			used := 0
			var stderr bytes.Buffer
			got, err := attempt(func() (outcome, error) {
				used++
				return test.runs[used-1], test.err
			}, &stderr)
			if got.end != test.want.end || got.code != test.want.code || !errors.Is(err, test.err) || used != test.used {
				t.Errorf("%+v, %v after %d runs, want %+v, %v after %d", got, err, used, test.want, test.err, test.used)
			}
			if said := strings.Contains(stderr.String(), "once more"); said != (used > 1) {
				t.Errorf("%d runs, and what was said of it: %q", used, stderr.String())
			}
		})
	}
}

func TestReport(t *testing.T) {
	tests := []struct {
		name    string
		result  outcome
		code    int
		err     string
		console bool
	}{
		{name: "all is well", result: outcome{end: ended}},
		{name: "the program failed", result: outcome{end: ended, code: 1}, code: 1, console: true},
		{name: "the guest died", result: outcome{end: died}, err: "the guest died", console: true},
		{name: "it was late", result: outcome{end: late}, err: "the guest did not end in time", console: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.result.output, test.result.console = []byte("PASS\n"), []byte("Kernel panic\n")
			var stdout, stderr bytes.Buffer
			code, err := report(test.result, &stdout, &stderr)
			if code != test.code || errorText(err) != test.err {
				t.Errorf("code %d, error %v, want %d, %q", code, err, test.code, test.err)
			}
			if stdout.String() != "PASS\n" {
				t.Errorf("standard output %q", stdout.String())
			}
			if got := strings.Contains(stderr.String(), "Kernel panic"); got != test.console {
				t.Errorf("console shown: %v, want %v", got, test.console)
			}
		})
	}
}
