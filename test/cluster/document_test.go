package cluster

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// block is the nth block of commands, from 0, under a heading of the page.
type block struct {
	heading string
	number  int
}

// find returns the block's commands. They are indented by four columns, and end at the next line that is not.
func (b block) find(page string) (string, error) {
	var blocks []string
	inside, open := false, false
	for line := range strings.Lines(page) {
		code, indented := strings.CutPrefix(line, "    ")
		switch {
		case strings.HasPrefix(line, "#"):
			inside, open = strings.TrimSpace(line) == b.heading, false
		case !inside || strings.TrimSpace(line) == "":
		case !indented:
			open = false
		case open:
			blocks[len(blocks)-1] += code
		default:
			blocks, open = append(blocks, code), true
		}
	}
	if b.number >= len(blocks) {
		return "", fmt.Errorf("%d blocks of commands under %q, want number %d", len(blocks), b.heading, b.number)
	}
	return blocks[b.number], nil
}

// withTunnels is what the page says in passing of installing with Helm where the kernel has no WireGuard.
var withTunnels = strings.NewReplacer("helm install ", "helm install --set tunnels.enabled=true ")

// follow does what blocks of the page say, to the letter, with the administrator's kubectl.
func (c *cluster) follow(t testing.TB, blocks ...block) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository(t), page))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		script, err := b.find(string(text))
		if err != nil {
			t.Fatal(err)
		}
		c.shell(t, withTunnels.Replace(script))
	}
}

// shellTime is more than the commands of the page wait for anything.
const shellTime = 6 * time.Minute

// shell runs a script as an administrator would, on the machine that carries the API server.
func (c *cluster) shell(t testing.TB, script string) string {
	t.Helper()
	command := exec.Command("bash", "-euxo", "pipefail", "-c", script)
	command.Dir = repository(t)
	command.Env = append(os.Environ(), "PATH="+c.binaries+":"+filepath.Join(command.Dir, ".cache")+":"+os.Getenv("PATH"), "KUBECONFIG="+c.plane.Admin())
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := (netns.View{Namespace: c.nodes[0].Namespace}).Start(command); err != nil {
		t.Fatal(err)
	}
	limit := time.AfterFunc(shellTime, func() { _ = command.Process.Kill() })
	defer limit.Stop()
	if err := command.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, output.String())
	}
	t.Logf("%s", output.String())
	return output.String()
}

// TestBlock reads pages.
func TestBlock(t *testing.T) {
	const text = "# A\n\n    one\n## B\nText:\n\n    # two\n    two <<E\n      more\n    E\n\nMore:\n\n    three\n## C\n    four\n"
	tests := []struct {
		name, want string
		block      block
	}{
		{name: "with an input", block: block{"## B", 0}, want: "# two\ntwo <<E\n  more\nE\n"},
		{name: "the second one", block: block{"## B", 1}, want: "three\n"},
		{name: "one too many", block: block{"## B", 2}},
		{name: "no such section", block: block{"## D", 0}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := test.block.find(text)
			if got != test.want || (err != nil) != (test.want == "") {
				t.Errorf("find = %q, %v, want %q", got, err, test.want)
			}
		})
	}
}
