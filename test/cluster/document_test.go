package cluster

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"warren/internal/lab/netns"
)

// repository is the root of this module, in which the documentation's commands are typed.
func repository(t testing.TB) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// commands are what the section of a page tells an operator to type: its blocks of shell, one after the other.
func commands(page, heading string) (string, error) {
	var script strings.Builder
	inside, block := false, false
	for line := range strings.Lines(page) {
		switch {
		case strings.HasPrefix(line, "```"):
			block = !block && strings.TrimSpace(line) == "```sh"
		case block && inside:
			script.WriteString(line)
		case !block && strings.HasPrefix(line, "#"):
			inside = strings.TrimSpace(line) == heading
		}
	}
	if script.Len() == 0 {
		return "", fmt.Errorf("no commands under %q", heading)
	}
	return script.String(), nil
}

// follow does what a section of docs/kubernetes.md says, to the letter, with the administrator's kubectl.
func (c *cluster) follow(t testing.TB, heading string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(repository(t), "docs", "kubernetes.md"))
	if err != nil {
		t.Fatal(err)
	}
	script, err := commands(string(page), heading)
	if err != nil {
		t.Fatal(err)
	}
	c.shell(t, script)
}

// shell runs a script as an administrator would, on the machine that carries the API server.
func (c *cluster) shell(t testing.TB, script string) string {
	t.Helper()
	command := exec.Command("bash", "-euxo", "pipefail", "-c", script)
	command.Dir = repository(t)
	command.Env = append(os.Environ(), "PATH="+c.binaries+":"+os.Getenv("PATH"), "KUBECONFIG="+c.plane.Admin())
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := (netns.View{Namespace: c.nodes[0].Namespace}).Start(command); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, output.String())
	}
	t.Logf("%s", output.String())
	return output.String()
}

// TestCommands reads pages.
func TestCommands(t *testing.T) {
	page := "# A\n```sh\none\n```\n## B\ntext\n```sh\n# two\ntwo\n```\nmore\n```sh\nthree\n```\n```yaml\nno: command\n```\n## C\n```sh\nfour\n```\n"
	if got, err := commands(page, "## B"); err != nil || got != "# two\ntwo\nthree\n" {
		t.Errorf("commands = %q, %v", got, err)
	}
	if got, err := commands(page, "## D"); err == nil {
		t.Errorf("commands of no section = %q", got)
	}
}
