package docs_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"warren/internal/cli"
)

var command = regexp.MustCompile(`(?:^|[\s(])warren((?: [a-z]+)+)`)

// TestCommands: every command that a page shows is one. `warren a b` may be the command b of a, or a
// with the argument b.
func TestCommands(t *testing.T) {
	for _, page := range pages(t) {
		for _, line := range codeOf(read(t, page)) {
			if strings.HasPrefix(strings.TrimSpace(line), "#") {
				continue // prose of a configuration file
			}
			for _, found := range command.FindAllStringSubmatch(line, -1) {
				words := strings.Fields(found[1])
				if !isCommand(words[:1]) {
					t.Errorf("%s: there is no command warren %s: %s", page, words[0], line)
				} else if hasCommands(words[:1]) && len(words) > 1 && !isCommand(words[:2]) {
					t.Errorf("%s: there is no command warren %s %s: %s", page, words[0], words[1], line)
				}
			}
		}
	}
}

// TestCommandsCanFail shows that a command that is not there is seen.
func TestCommandsCanFail(t *testing.T) {
	for _, words := range [][]string{{"frobnicate"}, {"lab", "frobnicate"}} {
		if isCommand(words) {
			t.Errorf("warren %s counts as a command", strings.Join(words, " "))
		}
	}
	if !isCommand([]string{"lab", "up"}) || !hasCommands([]string{"lab"}) || hasCommands([]string{"status"}) {
		t.Error("warren lab up does not count as a command, or warren status has commands")
	}
}

// help returns what `warren WORDS --help` prints; for words that are no command it is the help of
// the last one that is.
func help(words []string) string {
	var out bytes.Buffer
	cli.Main(append(words[:len(words):len(words)], "--help"), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	return out.String()
}

func isCommand(words []string) bool {
	return strings.Contains(help(words), "Usage:\n  warren "+strings.Join(words, " "))
}

func hasCommands(words []string) bool { return strings.Contains(help(words), "Available Commands:") }
