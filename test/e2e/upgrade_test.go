package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestUpgrade replaces the agents of a cluster in strict mode, one after the other, by those of another build with other
// eBPF programs. Nothing is lost, and nothing is in clear.
func TestUpgrade(t *testing.T) {
	needRoot(t)
	needTool(t, "clang-19", "llvm-strip-19")
	changed := buildChanged(t)
	c := up(t, "upgrade", "--nodes", "3", "--pods", "1", "--mode", "strict")
	w := watch(t, c)
	for _, node := range []string{"n1", "n2", "n3"} {
		if count := c.reason(node, "would_drop"); count != 0 {
			t.Errorf("%s: the present programs count %d packets as the changed ones do", node, count)
		}
		c.must("agent", "stop", node)
		startBinary(t, c, changed, node)
		eventually(t, 30*time.Second, node+" runs the changed programs and is ready", func() bool {
			return c.reason(node, "would_drop") > 0 && c.status(node).Ready
		})
	}
	time.Sleep(time.Second)
	w.finish(t)
	c.mustVerify(6 * 4 * 2 * 3)
}

// buildChanged builds Warren from a copy of this tree in which to_netdev counts every packet once more, for a reason that
// strict mode never has, and returns the path of the binary.
func buildChanged(t *testing.T) string {
	t.Helper()
	tree, root := t.TempDir(), filepath.Join("..", "..")
	for _, part := range []string{"cmd", "deploy", "internal", "scripts"} {
		if err := os.CopyFS(filepath.Join(tree, part), os.DirFS(filepath.Join(root, part))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(tree, name), text)
	}
	source := filepath.Join(tree, "internal", "datapath", "bpf", "warren.c")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	counting := []byte("\tcount(PROGRAM_TO_NETDEV, result.reason, bytes);\n")
	if bytes.Count(text, counting) != 1 {
		t.Fatalf("%s has no %q", source, counting)
	}
	write(t, source, bytes.Replace(text, counting, append(counting, "\tcount(PROGRAM_TO_NETDEV, REASON_WOULD_DROP, bytes);\n"...), 1))
	binary := filepath.Join(tree, "warren")
	for _, command := range [][]string{
		{filepath.Join(tree, "scripts", "generate-bpf.sh")},
		{"go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, "warren/cmd/warren"},
	} {
		build := exec.Command(command[0], command[1:]...)
		build.Dir, build.Env = tree, append(os.Environ(), "CGO_ENABLED=0")
		if output, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, output)
		}
	}
	return binary
}
