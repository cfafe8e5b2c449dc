package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warren/internal/api"
	"warren/internal/lab"
	"warren/internal/lab/proof"
)

// patience is the limit of what has to happen at some time. Under emulation everything takes ten
// times as long, and more on a busy machine: limits are there so that a test ends, not to measure.
const patience = 3 * time.Minute

// labName is the one lab that a guest has at a time.
const labName = "vm"

// warren runs the command that is in the guest's path and returns what it printed.
func warren(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	// Not the test's context: that has ended when the lab is removed.
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	var out, diagnostics bytes.Buffer
	command := exec.CommandContext(ctx, "warren", args...)
	command.Stdout, command.Stderr = &out, &diagnostics
	start := time.Now()
	if err = command.Run(); err != nil {
		err = fmt.Errorf("warren %s: %w\n%s%s", strings.Join(args, " "), err, out.String(), diagnostics.String())
	}
	t.Logf("%5.1f s: warren %s", time.Since(start).Seconds(), strings.Join(args, " "))
	return out.String(), err
}

// onLab runs a command of the lab that has to succeed.
func onLab(t *testing.T, verb string, args ...string) string {
	t.Helper()
	out, err := warren(t, append([]string{"lab", verb, "--name", labName}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// up builds a lab and removes it at the end, when nothing of it may be left.
func up(t *testing.T, args ...string) *lab.Lab {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			showLogs(t)
		}
		if _, err := warren(t, "lab", "down", "--name", labName); err != nil {
			t.Error(err)
		}
		for _, pattern := range []string{"/run/netns/*", lab.BaseDir + "*"} {
			if left, _ := filepath.Glob(pattern); len(left) > 0 {
				t.Errorf("the lab left behind: %s", left)
			}
		}
	})
	onLab(t, "up", append([]string{"--wait", patience.String()}, args...)...)
	l, err := lab.Open(labName, lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// showLogs prints the end of every agent's log.
func showLogs(t *testing.T) {
	t.Helper()
	logs, _ := filepath.Glob(filepath.Join(lab.BaseDir, labName, "n*", "agent.log"))
	for _, path := range logs {
		text, _ := os.ReadFile(path)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		t.Logf("the end of %s:\n%s", path, strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
}

// verify has the lab proved, and wants so many rows, all delivered and encrypted.
func verify(t *testing.T, rows int, args ...string) {
	t.Helper()
	args = append([]string{"lab", "verify", "--name", labName, "-o", "json", "--timeout", "1m"}, args...)
	text, failed := warren(t, args...)
	var report proof.Report
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatalf("read the report: %v\n%v", err, failed)
	}
	if !report.OK || failed != nil || len(report.Rows) != rows || report.Control.ClearFrames == 0 {
		t.Errorf("ok %v, void %q, %d rows, control %+v, %d stray frames in clear (%s); want %d rows in order",
			report.OK, report.Void, len(report.Rows), report.Control, report.StrayClearFrames, report.StrayExample, rows)
	}
	for _, row := range report.Rows {
		if !row.Delivered || row.ClearFrames != 0 || row.MarkerFrames != 0 || row.WireGuardFrames == 0 {
			t.Errorf("%s: %s: %+v", row.Row, row.Problem, row)
		}
	}
}

// status asks the agent of a node; the zero value when it does not answer.
func status(l *lab.Lab, node string) api.Status {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	status, _ := api.Dial(filepath.Join(l.RunDir(node), api.SocketName)).Status(ctx)
	return status
}

// peer returns the public key of a peer that is installed on a node; "" when it is not.
func peer(l *lab.Lab, node, name string) string {
	for _, p := range status(l, node).Peers {
		if p.Node == name && p.Installed {
			return p.PublicKey
		}
	}
	return ""
}

func eventually(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !reached(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in %v", what, patience)
		}
	}
}
