package userspace_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"warren/internal/wireguard/userspace"
	"warren/internal/wireguard/wgtest"
)

func runLauncher(executable, _, runDir string) error {
	return userspace.Launch(context.Background(), userspace.LauncherOptions{
		RunDir: runDir, Executable: executable, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
}

// container is a process of the test binary with a process namespace of its own, as a container has one.
type container struct {
	*exec.Cmd
	out *bufio.Reader
}

func startContainer(t *testing.T, namespace *wgtest.Namespace, role string, tunnel wgtest.Tunnel) container {
	t.Helper()
	command := exec.Command(executable(t), role, tunnel.Executable, tunnel.Device, tunnel.RunDir)
	command.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	command.Stderr = os.Stderr
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	namespace.Do(t, command.Start)
	c := container{command, bufio.NewReader(stdout)}
	t.Cleanup(c.end)
	return c
}

// end kills the first process, and so all others.
func (c container) end() {
	_ = c.Process.Kill()
	_ = c.Wait()
}

// startLauncher returns when the launcher answers.
func startLauncher(t *testing.T, namespace *wgtest.Namespace, tunnel wgtest.Tunnel) container {
	t.Helper()
	launcher := startContainer(t, namespace, "launcher", tunnel)
	eventually(t, "the launcher answers", func() bool {
		conn, err := net.Dial("unix", launcherOf(tunnel))
		return err == nil && conn.Close() == nil
	})
	return launcher
}

func launcherOf(tunnel wgtest.Tunnel) string {
	return filepath.Join(tunnel.RunDir, userspace.LauncherSocket)
}

// TestLauncher is a tunnel in one container and its agents in others.
func TestLauncher(t *testing.T) {
	namespace := wgtest.NewNamespace(t)
	tunnel := namespace.NewTunnel(t, userspace.TunnelOptions{Timeout: patience})
	startLauncher(t, namespace, tunnel)
	for _, agent := range []string{"first agent", "next agent"} {
		c := startContainer(t, namespace, "agent", tunnel)
		var pid int
		if _, err := fmt.Fscan(c.out, &pid); err != nil || pid != 0 {
			t.Fatalf("%s: process %d, %v; want one that it cannot see", agent, pid, err)
		}
		c.end()
		if _, alive := userspace.Find(tunnel.Device); !alive {
			t.Fatalf("the tunnel ended with the %s", agent)
		}
	}
	namespace.IP(t, "link", "delete", tunnel.Device)
	if err := startContainer(t, namespace, "stopper", tunnel).Wait(); err != nil {
		t.Errorf("stop after the device was deleted: %v", err)
	}
	if _, err := os.Lstat(socketOf(tunnel.Device)); err == nil {
		t.Error("the socket is still there")
	}
}

// TestStopUnseen: a process that nobody here can signal is not said to be stopped.
func TestStopUnseen(t *testing.T) {
	namespace := wgtest.NewNamespace(t)
	tunnel := namespace.NewTunnel(t, userspace.TunnelOptions{Timeout: patience})
	startLauncher(t, namespace, tunnel)
	tunnel.Ensure(t)
	if err := startContainer(t, namespace, "stopper", tunnel).Wait(); err == nil {
		t.Error("Stop succeeded while the device is there")
	}
	if _, alive := userspace.Find(tunnel.Device); !alive {
		t.Error("the tunnel has ended")
	}
}

// untilEnded waits until no process serves the tunnel.
func untilEnded(t *testing.T, tunnel wgtest.Tunnel) {
	t.Helper()
	eventually(t, "the tunnel ends", func() bool {
		_, alive := userspace.Find(tunnel.Device)
		return !alive
	})
}

// TestLauncherIsReplaced: tunnels end with their container, agents say what is missing meanwhile.
func TestLauncherIsReplaced(t *testing.T) {
	namespace := wgtest.NewNamespace(t)
	tunnel := namespace.NewTunnel(t, userspace.TunnelOptions{Timeout: patience})
	launcher := startLauncher(t, namespace, tunnel)
	tunnel.Ensure(t)
	launcher.end()
	untilEnded(t, tunnel)
	namespace.Do(t, func() error {
		_, err := tunnel.Tunnel.Ensure(t.Context())
		if err == nil || !strings.Contains(err.Error(), "start it again, or remove "+launcherOf(tunnel)) {
			t.Errorf("without a launcher: %v, want what to do", err)
		}
		return nil
	})
	startLauncher(t, namespace, tunnel)
	if process := tunnel.Ensure(t); process.Adopted {
		t.Error("a tunnel that had ended was adopted")
	}
}

// TestOnlyLauncher: who may start no process waits for a launcher that has not come yet, and for one that is gone.
func TestOnlyLauncher(t *testing.T) {
	namespace := wgtest.NewNamespace(t)
	tunnel := namespace.NewTunnel(t, userspace.TunnelOptions{Timeout: patience, OnlyLauncher: true})
	waits := func(when string) {
		t.Helper()
		namespace.Do(t, func() error {
			if _, err := tunnel.Tunnel.Ensure(t.Context()); err == nil || !strings.Contains(err.Error(), "deploy/tunnels.yaml") {
				t.Errorf("%s: %v, want what to do", when, err)
			}
			return nil
		})
	}
	waits("before there is a launcher")
	launcher := startLauncher(t, namespace, tunnel)
	tunnel.Ensure(t)
	launcher.end()
	untilEnded(t, tunnel)
	waits("after it has ended")
	startLauncher(t, namespace, tunnel)
	tunnel.Ensure(t)
}

func TestLauncherRefuses(t *testing.T) {
	tests := []struct{ name, executable, question, want string }{
		{name: "no question", question: "\n", want: "read what to start"},
		{name: "no MTU", question: "warren0\n", want: "read what to start"},
		{name: "a path", question: "../x 1400\n", want: `"../x"`},
		{name: "a question without end", question: strings.Repeat("x", 1024), want: "read what to start"},
		{name: "a tunnel that ends", executable: "silent", question: wgtest.DeviceName() + " 1400\n", want: "it ended at once"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			namespace := wgtest.NewNamespace(t)
			options := userspace.TunnelOptions{Timeout: patience}
			if test.executable != "" {
				options.Executable = linkTo(t, test.executable)
			}
			tunnel := namespace.NewTunnel(t, options)
			startLauncher(t, namespace, tunnel)
			conn, err := net.Dial("unix", launcherOf(tunnel))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write([]byte(test.question)); err != nil {
				t.Fatal(err)
			}
			answer, err := bufio.NewReader(conn).ReadString('\n')
			if err != nil || !strings.Contains(answer, test.want) {
				t.Errorf("answer %q, %v; want a line with %q", answer, err, test.want)
			}
		})
	}
}
