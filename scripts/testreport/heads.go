package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Limits of what is repeated of a failed test: among it must be why it failed, for whoever sees but the end of a long log,
// and many failures must not push each other out.
const (
	// headsPerPlace: what one line of a test says again and again is of one kind.
	headsPerPlace = 2
	// Of more kinds than these together, the first and the last are kept: Errorf comes early, Fatalf late.
	firstHeads, lastHeads = 6, 4
	headLength            = 240 // bytes
)

var (
	// said is the first line of something that a test logs, with its place; what follows of it is indented more.
	said = regexp.MustCompile(`^ {4}([\w-]+\.go:\d+): `)
	// step tells how long something took, which is no reason to fail.
	step = regexp.MustCompile(`^ {4}[\w-]+\.go:\d+: +\d+\.\d s: `)
)

// headsOf returns the name of a test that failed, and the first lines of what it said apart from its steps.
func headsOf(at name, lines []string) []string {
	heads := slices.Concat([]string{fmt.Sprintf("failed: %s %s\n", at.pkg, at.test)}, perPlace(lines))
	if more := len(heads) - 1 - firstHeads - lastHeads; more > 0 {
		heads = slices.Replace(heads, 1+firstHeads, 1+firstHeads+more, fmt.Sprintf("    … %d more\n", more))
	}
	return heads
}

// perPlace returns so many heads of each place, the last of them with the number of those left out.
func perPlace(lines []string) []string {
	var heads []string
	last, seen := map[string]int{}, map[string]int{} // by place: the index of its last head, and how many there were
	for _, line := range lines {
		m := said.FindStringSubmatch(line)
		if m == nil || step.MatchString(line) {
			continue
		}
		place := m[1]
		if seen[place]++; seen[place] <= headsPerPlace {
			last[place] = len(heads)
			heads = append(heads, shorten(strings.TrimSuffix(line, "\n")))
		}
	}
	for place, i := range last {
		if more := seen[place] - headsPerPlace; more > 0 {
			heads[i] += fmt.Sprintf(" (and %d more from there)", more)
		}
	}
	for i := range heads {
		heads[i] += "\n"
	}
	return heads
}

func shorten(line string) string {
	if len(line) <= headLength {
		return line
	}
	return strings.ToValidUTF8(line[:headLength], "") + "…"
}
