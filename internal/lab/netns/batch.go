package netns

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// ErrNoIproute2 says that the tools this package builds on are not installed.
var ErrNoIproute2 = errors.New("iproute2 is not installed: apt-get install iproute2 (Debian), dnf install iproute (Fedora)")

// Script is a list of commands for one tool of iproute2 in one namespace.
type Script struct {
	// Namespace the tool runs in; empty is the caller's.
	Namespace string
	// Tool is "ip" or "bridge".
	Tool string
	// Options of the tool for all lines, such as "-6".
	Options []string
	// Lines as the tool's -batch reads them, without the tool's name.
	Lines []string
}

// Batch runs a script. It stops at the first line that the tool refuses and returns what the tool said.
func Batch(ctx context.Context, script Script) error {
	if len(script.Lines) == 0 {
		return nil
	}
	path, err := exec.LookPath(script.Tool)
	if err != nil {
		return fmt.Errorf("run %s: %w", script.Tool, ErrNoIproute2)
	}
	args := slices.Clone(script.Options)
	if script.Namespace != "" {
		args = append(args, "-netns", script.Namespace)
	}
	args = append(args, "-batch", "-")
	command := exec.CommandContext(ctx, path, args...)
	command.Stdin = strings.NewReader(strings.Join(script.Lines, "\n") + "\n")
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s in namespace %q: %w: %s", script.Tool, script.Namespace, err, explain(script, string(output)))
	}
	return nil
}

// explain puts the refused line next to the tool's words, which only give its number
// ("Command failed -:3").
func explain(script Script, output string) string {
	output = strings.TrimSpace(output)
	_, after, found := strings.Cut(output, "Command failed -:")
	var number int
	if !found {
		return output
	}
	if _, err := fmt.Sscanf(after, "%d", &number); err != nil || number < 1 || number > len(script.Lines) {
		return output
	}
	return fmt.Sprintf("%s: %s", script.Lines[number-1], output)
}
