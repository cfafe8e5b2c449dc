package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/api"
	"warren/internal/lab"
	"warren/internal/lab/control"
	"warren/internal/lab/netns"
	"warren/internal/lab/proof"
)

// warren is the binary under test.
var warren = os.Getenv("WARREN_BINARY")

func TestMain(m *testing.M) {
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (int, error) {
	if warren != "" || unix.Geteuid() != 0 {
		return m.Run(), nil
	}
	dir, err := os.MkdirTemp("", "warren-e2e-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	warren = filepath.Join(dir, "warren")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", warren, "warren/cmd/warren")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build warren: %w\n%s", err, output)
	}
	return m.Run(), nil
}

// testLab is a lab as its user knows it: by the command line.
type testLab struct {
	t    testing.TB
	name string
}

// newTestLab reserves a name and removes whatever has it at the end, which must leave nothing.
func newTestLab(t testing.TB, name string) *testLab {
	t.Helper()
	needRoot(t)
	c := &testLab{t: t, name: fmt.Sprintf("%s-%d", name, os.Getpid())}
	t.Cleanup(func() {
		if t.Failed() {
			c.showLogs()
		}
		c.down()
		if left := leftovers(c.name); len(left) > 0 {
			t.Errorf("the lab left behind:\n%s", strings.Join(left, "\n"))
		}
	})
	return c
}

// up builds the lab with agents, three nodes of two pods unless the arguments say otherwise.
func up(t testing.TB, name string, args ...string) *testLab {
	t.Helper()
	c := newTestLab(t, name)
	c.must("up", args...)
	return c
}

// result is how a command ended.
type result struct {
	stdout, stderr string
	code           int
}

// run runs `warren lab VERB` for this lab.
func (c *testLab) run(verb string, args ...string) result {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, warren, append([]string{"lab", verb, "--name", c.name}, args...)...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	command.WaitDelay = 5 * time.Second
	start := time.Now()
	err := command.Run()
	c.t.Logf("%5.1f s: warren lab %s %s", time.Since(start).Seconds(), verb, strings.Join(args, " "))
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		c.t.Fatalf("warren lab %s %s: %v", verb, strings.Join(args, " "), errors.Join(err, ctx.Err()))
	}
	return result{stdout.String(), stderr.String(), command.ProcessState.ExitCode()}
}

// must runs a command that has to succeed and returns what it printed.
func (c *testLab) must(verb string, args ...string) string {
	c.t.Helper()
	r := c.run(verb, args...)
	if r.code != 0 {
		c.t.Fatalf("warren lab %s %s: exit code %d\n%s%s", verb, strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// exec runs a command in a place of the lab, such as "n1/p1".
func (c *testLab) exec(place string, command ...string) result {
	c.t.Helper()
	return c.run("exec", append([]string{place, "--"}, command...)...)
}

// mustExec runs a command that has to succeed in a place of the lab.
func (c *testLab) mustExec(place string, command ...string) string {
	c.t.Helper()
	r := c.exec(place, command...)
	if r.code != 0 {
		c.t.Fatalf("%s on %s: exit code %d\n%s%s", strings.Join(command, " "), place, r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

func (c *testLab) down() {
	c.t.Helper()
	c.must("down")
}

// verify checks the lab on its wire and returns the report whatever it says.
func (c *testLab) verify(args ...string) proof.Report {
	c.t.Helper()
	r := c.run("verify", append([]string{"-o", "json"}, args...)...)
	var report proof.Report
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		c.t.Fatalf("warren lab verify: %v\n%s%s", err, r.stdout, r.stderr)
	}
	if report.OK != (r.code == 0) {
		c.t.Errorf("warren lab verify: ok %v, exit code %d", report.OK, r.code)
	}
	return report
}

// mustVerify expects everything encrypted and delivered, in as many rows as given.
func (c *testLab) mustVerify(rows int, args ...string) {
	c.t.Helper()
	report := c.verify(args...)
	if report.Void != "" {
		c.t.Fatalf("void: %s", report.Void)
	}
	if len(report.Rows) != rows || report.Control.ClearFrames == 0 {
		c.t.Errorf("%d rows, %d clear frames in the control, want %d rows and more than none", len(report.Rows), report.Control.ClearFrames, rows)
	}
	for _, row := range report.Rows {
		if !row.OK || !row.Delivered || row.ClearFrames != 0 || row.MarkerFrames != 0 || row.WireGuardFrames == 0 {
			c.t.Errorf("%s %s to %s, %s %s: %s", row.Class, row.From, row.To, row.Family, row.Protocol, row.Problem)
		}
	}
	if report.StrayClearFrames > 0 {
		c.t.Errorf("%d frames in clear belong to no row, such as %s", report.StrayClearFrames, report.StrayExample)
	}
}

// open gives the tests what the command line does not show: namespaces, directories, process ids.
func (c *testLab) open() *lab.Lab {
	c.t.Helper()
	l, err := lab.Open(c.name, lab.Options{})
	if err != nil {
		c.t.Fatal(err)
	}
	return l
}

// node returns a node of the lab.
func (c *testLab) node(name string) lab.Node {
	c.t.Helper()
	node, ok := c.open().Topology.Node(name)
	if !ok {
		c.t.Fatalf("no node %s", name)
	}
	return node
}

// pid returns the process id of a node's agent, 0 when none runs.
func (c *testLab) pid(name string) int {
	c.t.Helper()
	return c.open().AgentPID(c.node(name))
}

// client is the local API of a node's agent.
func (c *testLab) client(name string) *api.Client {
	return api.Dial(filepath.Join(lab.BaseDir, c.name, name, "run", api.SocketName))
}

// agentLog is the file with the log of a node's agent.
func (c *testLab) agentLog(name string) string {
	return filepath.Join(lab.BaseDir, c.name, name, "agent.log")
}

// status asks the agent of a node; an agent that does not answer has no peers.
func (c *testLab) status(name string) api.Status {
	status, err := c.client(name).Status(context.Background())
	if err != nil {
		return api.Status{}
	}
	return status
}

// peers returns the names of the peers that a node encrypts to.
func (c *testLab) peers(name string) []string {
	var names []string
	for _, peer := range c.status(name).Peers {
		if peer.Installed && peer.Encrypting {
			names = append(names, peer.Node)
		}
	}
	return names
}

// eventually waits until the condition holds and returns how long that took.
func eventually(t testing.TB, limit time.Duration, what string, condition func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !condition() {
		if time.Since(start) > limit {
			t.Fatalf("%s: not within %v", what, limit)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(start)
}

// showLogs prints of a test that failed the end of every agent's and tunnel's log, and what its nodes dropped: all as one
// thing said, so that a report in short has room for why it failed.
func (c *testLab) showLogs() {
	l, err := lab.Open(c.name, lab.Options{})
	if err != nil {
		c.t.Log(err)
		return
	}
	var text strings.Builder
	for _, node := range l.Topology.Nodes {
		logs, _ := filepath.Glob(filepath.Join(l.RunDir(node.Name), "*.log"))
		for _, path := range append(logs, c.agentLog(node.Name)) {
			fmt.Fprintf(&text, "the end of %s:\n%s\n", path, control.LogTail(path, 25))
		}
		if err := netns.Do(node.Namespace, func() error { return writeDrops(&text, node.Name) }); err != nil {
			fmt.Fprintln(&text, err)
		}
	}
	c.t.Logf("what the nodes of lab %s say:\n%s", c.name, text.String())
}

// writeDrops writes what the links and the UDP sockets of this thread's namespace did not carry (proc_pid_net(5)).
func writeDrops(text *strings.Builder, name string) error {
	for _, file := range []string{"dev", "snmp", "snmp6"} {
		content, err := os.ReadFile("/proc/thread-self/net/" + file)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(content)) {
			f := strings.Fields(line)
			link := file == "dev" && len(f) == 17 && f[3]+f[4]+f[11]+f[12] != "0000" // errors and drops, received and sent
			if link || strings.HasPrefix(line, "Udp: ") || strings.HasPrefix(line, "Udp6") && strings.Contains(line, "Err") {
				fmt.Fprintf(text, "%s: %s: %s\n", name, file, strings.Join(f, " "))
			}
		}
	}
	return nil
}

// needRoot skips where labs cannot be made, and fails where they must be.
func needRoot(t testing.TB) {
	t.Helper()
	if unix.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("labs need root")
	}
	t.Skip("needs root: makes network namespaces")
}

// needTool skips where a tool is missing, and fails where it must be there.
func needTool(t testing.TB, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err == nil {
			continue
		}
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not installed", tool)
		}
		t.Skipf("needs %s", tool)
	}
}
