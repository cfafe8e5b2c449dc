package netns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestExplain(t *testing.T) {
	script := Script{Tool: "ip", Lines: []string{"link set lo up", "link add eth0 type nonsense"}}
	tests := []struct{ name, output, want string }{
		{name: "second line", output: "Error: Unknown device type.\nCommand failed -:2\n",
			want: "link add eth0 type nonsense: Error: Unknown device type.\nCommand failed -:2"},
		{name: "no line", output: "Cannot open network namespace\n", want: "Cannot open network namespace"},
		{name: "line that was never sent", output: "Command failed -:9", want: "Command failed -:9"},
		{name: "no number", output: "Command failed -:x", want: "Command failed -:x"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, explain(script, test.output)); diff != "" {
				t.Errorf("explain (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNamespaces goes through the life of a namespace with everything that others build on.
func TestNamespaces(t *testing.T) {
	needRoot(t)
	name := fmt.Sprintf("warren-netns-test-%d", os.Getpid())
	t.Cleanup(func() { _ = Delete(name) })
	if err := Create(t.Context(), name); err != nil {
		t.Fatal(err)
	}

	t.Run("listed", func(t *testing.T) {
		names, err := List()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Join(names, "\n"), name) {
			t.Errorf("List() = %q, want %s among them", names, name)
		}
	})
	t.Run("inside is another network", func(t *testing.T) {
		before := threadNamespace(t)
		var inside string
		if err := Do(name, func() (err error) { inside, err = os.Readlink("/proc/thread-self/ns/net"); return err }); err != nil {
			t.Fatal(err)
		}
		if inside == before {
			t.Errorf("Do ran in the caller's namespace %s", inside)
		}
		if after := threadNamespace(t); after != before {
			t.Errorf("the caller's namespace changed from %s to %s", before, after)
		}
	})
	t.Run("a started process has its command line", func(t *testing.T) { startNames(t, name) })
	t.Run("settings stay inside", func(t *testing.T) {
		host := readFile(t, "/proc/sys/net/ipv4/conf/default/log_martians")
		value := "1"
		if host == "1" {
			value = "0"
		}
		if err := Set(name, []Setting{{Key: "ipv4/conf/default/log_martians", Value: value}, {Key: "no/such/key", Value: "1", Optional: true}}); err != nil {
			t.Fatal(err)
		}
		if got, err := Get(name, "ipv4/conf/default/log_martians"); err != nil || got != value {
			t.Errorf("Get = %q, %v, want %q", got, err, value)
		}
		if after := readFile(t, "/proc/sys/net/ipv4/conf/default/log_martians"); after != host {
			t.Errorf("the host's value changed from %s to %s", host, after)
		}
	})
	t.Run("refused line is named", func(t *testing.T) {
		err := Batch(t.Context(), Script{Namespace: name, Tool: "ip", Lines: []string{"link set lo up", "link add x type nonsense"}})
		if err == nil || !strings.Contains(err.Error(), "link add x type nonsense") {
			t.Errorf("Batch = %v, want the refused line", err)
		}
	})
	t.Run("processes are found and ended", func(t *testing.T) { endProcesses(t, name) })
	t.Run("view", func(t *testing.T) { viewMounts(t, name) })
	t.Run("delete twice", func(t *testing.T) {
		for range 2 {
			if err := Delete(name); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := os.Stat(Path(name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v, want it gone", Path(name), err)
		}
	})
}

// TestDeleteHalfMade removes the bare file that an interrupted `ip netns add` leaves.
func TestDeleteHalfMade(t *testing.T) {
	needRoot(t)
	name := fmt.Sprintf("warren-netns-half-%d", os.Getpid())
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(Path(name), nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := Delete(name); err != nil {
		t.Fatal(err)
	}
}

// endProcesses ends one process that goes by itself and one that has to be killed.
func endProcesses(t *testing.T, name string) {
	polite, stubborn := exec.Command("sleep", "60"), exec.Command("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done")
	ready, err := stubborn.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []*exec.Cmd{polite, stubborn} {
		if err := (View{Namespace: name}).Start(command); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ready.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	pids, err := Processes(name)
	if err != nil || len(pids) < 2 {
		t.Fatalf("Processes = %v, %v, want two or more", pids, err)
	}
	var waiting sync.WaitGroup
	waiting.Go(func() { _ = polite.Wait() })
	waiting.Go(func() { _ = stubborn.Wait() })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := End(ctx, 200*time.Millisecond, name); err != nil {
		t.Fatal(err)
	}
	waiting.Wait()
	got := []string{polite.ProcessState.String(), stubborn.ProcessState.String()}
	if diff := cmp.Diff([]string{"signal: terminated", "signal: killed"}, got); diff != "" {
		t.Errorf("how they ended (-want +got):\n%s", diff)
	}
}

// startNames checks that a process has its command line when it has been started, and that one which ends at once is not
// waited for. Without the waiting some of hundred have none yet.
func startNames(t *testing.T, name string) {
	for range 100 {
		command := exec.Command("sleep", "60")
		if err := (View{Namespace: name}).Start(command); err != nil {
			t.Fatal(err)
		}
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", command.Process.Pid))
		_ = errors.Join(command.Process.Kill(), command.Wait())
		if err != nil || string(line) != "sleep\x0060\x00" {
			t.Fatalf("command line %q, %v", line, err)
		}
	}
	start, command := time.Now(), exec.Command("true")
	if err := errors.Join((View{Namespace: name}).Start(command), command.Wait()); err != nil || time.Since(start) > nameTime {
		t.Errorf("true: %v after %v", err, time.Since(start))
	}
}

// viewMounts checks that a process inside sees its binds and its own /sys, and that nobody else does.
func viewMounts(t *testing.T, name string) {
	source, target := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(source, "seen"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	view := View{Namespace: name, Binds: []Bind{{Source: source, Target: target}, {Source: source, Target: "/no/such/folder"}}}
	var output strings.Builder
	command := exec.Command("ls", "-d", filepath.Join(target, "seen"), "/sys/class/net/inside-only")
	command.Stdout = &output
	if err := Batch(t.Context(), Script{Namespace: name, Tool: "ip", Lines: []string{"link add inside-only type bridge"}}); err != nil {
		t.Fatal(err)
	}
	if err := view.Start(command); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		t.Errorf("list what is inside: %v: %s", err, output.String())
	}
	if entries, err := os.ReadDir(target); err != nil || len(entries) > 0 {
		t.Errorf("outside %s has %v (%v), want nothing", target, entries, err)
	}
}

func threadNamespace(t *testing.T) string {
	t.Helper()
	link, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return link
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// needRoot skips where namespaces cannot be made, and fails where they must be.
func needRoot(t *testing.T) {
	t.Helper()
	if unix.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("this test makes network namespaces and needs root")
	}
	t.Skip("needs root: makes network namespaces")
}
