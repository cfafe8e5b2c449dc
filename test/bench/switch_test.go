package main

import (
	"strings"
	"testing"
)

func TestSwitchingTable(t *testing.T) {
	text := switchingTable([]string{"a machine"}, []path{{name: "host → host"}}, map[string][]switched{
		"host → host": {{on: 0.9, off: 1}, {on: 1.1, off: 0.5}, {on: 1, off: 2}},
	})
	want := "| host → host | 3 | 1.00 | 0.90 | 1.00 | 0.50 |\n"
	if !strings.HasSuffix(text, want) || !strings.Contains(text, "- a machine\n") {
		t.Errorf("got\n%swant the machine, and at the end\n%s", text, want)
	}
}
