package userspace_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"warren/internal/wireguard/userspace"
	"warren/internal/wireguard/wgtest"
)

// patience is for what takes milliseconds on an idle machine.
const patience = 30 * time.Second

// TestMain: the test binary is `warren tunnel` (see wgtest.Main), an agent that dies, a launcher, somebody who
// stops a tunnel, and, by the names of links to it, tunnels that do not work.
func TestMain(m *testing.M) {
	if run, ok := broken[filepath.Base(os.Args[0])]; ok {
		run()
		os.Exit(3)
	}
	if len(os.Args) == 5 && roles[os.Args[1]] != nil {
		if err := roles[os.Args[1]](os.Args[2], os.Args[3], os.Args[4]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	wgtest.Main(m)
}

// roles are what the test binary is with the arguments ROLE EXECUTABLE DEVICE RUN-DIR.
var roles = map[string]func(executable, device, runDir string) error{
	"agent":    runAgent,
	"launcher": runLauncher,
	"stopper":  func(_, device, _ string) error { return userspace.Stop(context.Background(), device) },
}

var broken = map[string]func(){
	"silent":  func() {},
	"failing": func() { fmt.Fprintln(os.Stderr, "no such luck") },
	"talking": func() { fmt.Println(strings.Repeat("words ", 10_000) + "the end") },
	"hanging": func() {
		fmt.Println("I wait")
		time.Sleep(patience)
	},
}

// runAgent starts a tunnel, prints its process id, and waits to be killed.
func runAgent(executable, device, runDir string) error {
	tunnel := userspace.NewTunnel(
		userspace.TunnelOptions{Executable: executable, Device: device, MTU: 1400, RunDir: runDir}, slog.New(slog.DiscardHandler))
	process, err := tunnel.Ensure(context.Background())
	if err != nil {
		return err
	}
	fmt.Println(process.PID)
	time.Sleep(patience)
	return nil
}

func TestEnsureStartsOnceAndAdopts(t *testing.T) {
	namespace := wgtest.NewNamespace(t)
	first := namespace.NewTunnel(t, userspace.TunnelOptions{})
	started := first.Ensure(t)
	if started.Adopted || started.PID == 0 {
		t.Errorf("the first Ensure: %+v, want a new process", started)
	}
	if again := first.Ensure(t); again != (userspace.Process{PID: started.PID, Adopted: true}) {
		t.Errorf("the second Ensure: %+v, want process %d adopted", again, started.PID)
	}
	next := namespace.NewTunnel(t, userspace.TunnelOptions{Device: first.Device}) // the next agent
	if adopted := next.Ensure(t); adopted != (userspace.Process{PID: started.PID, Adopted: true}) {
		t.Errorf("Ensure of the next agent: %+v, want process %d adopted", adopted, started.PID)
	}
	if pid, alive := userspace.Find(first.Device); pid != started.PID || !alive {
		t.Errorf("Find: %d, %v; want %d, alive", pid, alive, started.PID)
	}
	if got := mtu(t, namespace, first.Device); got != 1400 {
		t.Errorf("MTU %d, want 1400", got)
	}
}

// TestRacingAgents: however many agents want a tunnel at the same time, there is one.
func TestRacingAgents(t *testing.T) {
	namespace, runDir, device := wgtest.NewNamespace(t), t.TempDir(), wgtest.DeviceName()
	const agents = 6
	tunnels, processes := make([]wgtest.Tunnel, agents), make([]userspace.Process, agents)
	for i := range tunnels {
		tunnels[i] = namespace.NewTunnel(t, userspace.TunnelOptions{Device: device, RunDir: runDir, Timeout: patience})
	}
	var wait sync.WaitGroup
	for i, tunnel := range tunnels {
		wait.Go(func() { processes[i] = tunnel.Ensure(t) })
	}
	wait.Wait()
	starters := 0
	for _, process := range processes {
		if process.PID != processes[0].PID {
			t.Errorf("two tunnels: %d and %d", process.PID, processes[0].PID)
		}
		if !process.Adopted {
			starters++
		}
	}
	if starters != 1 {
		t.Errorf("%d agents started a process, want 1", starters)
	}
}

// TestOutlivesAgent: neither kill -9 of the agent nor of everything in its process group and
// session ends the tunnel, and the next agent adopts it.
func TestOutlivesAgent(t *testing.T) {
	namespace := wgtest.NewNamespace(t)
	tunnel := namespace.NewTunnel(t, userspace.TunnelOptions{})
	agent := exec.Command(tunnel.Executable, "agent", tunnel.Executable, tunnel.Device, tunnel.RunDir)
	agent.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	agent.Stderr = os.Stderr
	stdout, err := agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	namespace.Do(t, agent.Start)
	var pid int
	if _, err := fmt.Fscan(stdout, &pid); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(-agent.Process.Pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = agent.Wait()
	if adopted := tunnel.Ensure(t); adopted != (userspace.Process{PID: pid, Adopted: true}) {
		t.Errorf("Ensure after the agent was killed: %+v, want process %d adopted", adopted, pid)
	}
}

// TestPriority: every thread of the process comes before others, and its session does.
func TestPriority(t *testing.T) {
	tunnel := wgtest.NewNamespace(t).NewTunnel(t, userspace.TunnelOptions{})
	pid := tunnel.Ensure(t).PID
	proc := fmt.Sprintf("/proc/%d/", pid)
	threads, err := os.ReadDir(proc + "task")
	if err != nil || len(threads) == 0 {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	for _, thread := range threads {
		id, _ := strconv.Atoi(thread.Name())
		// The system call returns 20 minus the niceness.
		if got, err := unix.Getpriority(unix.PRIO_PROCESS, id); err != nil || 20-got != -10 {
			t.Errorf("thread %d has niceness %d, %v; want -10", id, 20-got, err)
		}
	}
	// "/autogroup-42 nice -10"
	if group, err := os.ReadFile(proc + "autogroup"); !errors.Is(err, os.ErrNotExist) && !strings.HasSuffix(string(group), " nice -10\n") {
		t.Errorf("session %q, %v", group, err)
	}
}

// TestDetached looks at what the process has of its parent: nothing.
func TestDetached(t *testing.T) {
	namespace := wgtest.NewNamespace(t)
	var inherited [2]int // not close-on-exec, as what an agent gets from a careless parent
	if err := unix.Pipe(inherited[:]); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(inherited[0])
	defer unix.Close(inherited[1])
	t.Setenv("WARREN_TEST_SECRET", "hunter2")
	tunnel := namespace.NewTunnel(t, userspace.TunnelOptions{})
	pid := tunnel.Ensure(t).PID
	proc := fmt.Sprintf("/proc/%d/", pid)
	if session, err := unix.Getsid(pid); err != nil || session != pid {
		t.Errorf("session %d, %v; want its own", session, err)
	}
	if dir, err := os.Readlink(proc + "cwd"); err != nil || dir != "/" {
		t.Errorf("works in %s, %v; want /", dir, err)
	}
	if environment, err := os.ReadFile(proc + "environ"); err != nil || len(environment) != 0 {
		t.Errorf("environment %q, %v; want none", environment, err)
	}
	log := filepath.Join(tunnel.RunDir, "tunnel-"+tunnel.Device+".log")
	for fd, want := range []string{os.DevNull, log, log} {
		if got, err := os.Readlink(proc + "fd/" + strconv.Itoa(fd)); err != nil || got != want {
			t.Errorf("file %d is %s, %v; want %s", fd, got, err, want)
		}
	}
	pipe, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", inherited[0]))
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name, _ := os.Readlink(proc + "fd/" + file.Name()); name == pipe {
			t.Errorf("it has the parent's %s", pipe)
		}
	}
	if info, err := os.Stat(log); err != nil || info.Mode() != 0o600 {
		t.Errorf("log: %v, %v; want mode 0600", info.Mode(), err)
	}
	if info, err := os.Stat(socketOf(tunnel.Device)); err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("socket: %v, %v; want mode 0600", info.Mode(), err)
	}
}

func TestEnds(t *testing.T) {
	tests := []struct {
		name string
		end  func(t *testing.T, namespace *wgtest.Namespace, device string, pid int)
	}{
		{"when its device is deleted", func(t *testing.T, namespace *wgtest.Namespace, device string, _ int) {
			namespace.IP(t, "link", "delete", device)
		}},
		{"on SIGTERM", func(t *testing.T, _ *wgtest.Namespace, _ string, pid int) { kill(t, pid, unix.SIGTERM) }},
		{"on SIGINT", func(t *testing.T, _ *wgtest.Namespace, _ string, pid int) { kill(t, pid, unix.SIGINT) }},
		{"when stopped", func(t *testing.T, _ *wgtest.Namespace, device string, _ int) { stop(t, device) }},
		{"when stopped while it hangs", func(t *testing.T, _ *wgtest.Namespace, device string, pid int) {
			kill(t, pid, unix.SIGSTOP)
			stop(t, device)
		}},
		{"when killed, and what is left is removed by Stop", func(t *testing.T, _ *wgtest.Namespace, device string, pid int) {
			kill(t, pid, unix.SIGKILL)
			eventually(t, "the socket refuses", func() bool {
				_, err := net.Dial("unix", socketOf(device))
				return errors.Is(err, syscall.ECONNREFUSED)
			})
			stop(t, device)
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			namespace := wgtest.NewNamespace(t)
			tunnel := namespace.NewTunnel(t, userspace.TunnelOptions{})
			process := tunnel.Ensure(t)
			test.end(t, namespace, tunnel.Device, process.PID)
			eventually(t, "the process is gone", func() bool { return dead(process.PID) })
			if _, err := os.Lstat(socketOf(tunnel.Device)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the socket is still there: %v", err)
			}
			if links := namespace.IP(t, "-brief", "link"); strings.Contains(links, tunnel.Device) {
				t.Errorf("the device is still there:\n%s", links)
			}
			if pid, alive := userspace.Find(tunnel.Device); alive {
				t.Errorf("Find: process %d", pid)
			}
			if next := tunnel.Ensure(t); next.Adopted || next.PID == process.PID {
				t.Errorf("the next one: %+v, want a new process", next)
			}
		})
	}
}

func TestSurvives(t *testing.T) {
	namespace := wgtest.NewNamespace(t)
	tunnel := namespace.NewTunnel(t, userspace.TunnelOptions{})
	process := tunnel.Ensure(t)
	kill(t, process.PID, unix.SIGHUP)
	if err := os.Remove(socketOf(tunnel.Device)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its socket is back", func() bool {
		pid, alive := userspace.Find(tunnel.Device)
		return alive && pid == process.PID
	})
}

// TestProfile: SIGUSR1 has a profile written, and a second one meanwhile does no harm. An early end is a short one.
func TestProfile(t *testing.T) {
	namespace := wgtest.NewNamespace(t)
	tunnel := namespace.NewTunnel(t, userspace.TunnelOptions{})
	process := tunnel.Ensure(t)
	kill(t, process.PID, unix.SIGUSR1)
	eventually(t, "it profiles", func() bool { return strings.Contains(tunnel.Log(t), "profiling") })
	kill(t, process.PID, unix.SIGUSR1)
	kill(t, process.PID, unix.SIGTERM)
	eventually(t, "the process is gone", func() bool { return dead(process.PID) })
	path := filepath.Join(tunnel.RunDir, "tunnel-"+tunnel.Device+".pprof")
	text, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(text), "\x1f\x8b") {
		t.Errorf("a profile of %d bytes, %v; want it compressed (RFC 1952)", len(text), err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
}

// TestStaleSocket: a new tunnel takes the place of a socket whose process was killed.
func TestStaleSocket(t *testing.T) {
	namespace := wgtest.NewNamespace(t)
	var log strings.Builder
	tunnel := namespace.NewTunnel(t, userspace.TunnelOptions{})
	tunnel.Tunnel = userspace.NewTunnel(tunnel.TunnelOptions, slog.New(slog.NewTextHandler(&log, nil)))
	process := tunnel.Ensure(t)
	kill(t, process.PID, unix.SIGKILL)
	eventually(t, "it is dead", func() bool { return dead(process.PID) })
	if _, err := os.Lstat(socketOf(tunnel.Device)); err != nil {
		t.Fatalf("the test is void: %v", err)
	}
	if next := tunnel.Ensure(t); next.Adopted || next.PID == process.PID {
		t.Errorf("Ensure: %+v, want a new process", next)
	}
	old, err := os.ReadFile(filepath.Join(tunnel.RunDir, "tunnel-"+tunnel.Device+".log.old"))
	if err != nil || !strings.Contains(string(old), "tunnel is up") {
		t.Errorf("the log of the one before is %q, %v", old, err)
	}
	tunnel.Ensure(t)
	var messages []string
	for line := range strings.Lines(log.String()) {
		_, rest, _ := strings.Cut(line, "msg=")
		messages = append(messages, strings.Split(rest, `"`)[1])
	}
	want := []string{"tunnel process runs", "tunnel process is gone, starting another", "tunnel process runs"}
	if diff := cmp.Diff(want, messages); diff != "" {
		t.Errorf("logged (-want +got):\n%s", diff)
	}
}

func TestEnsureFails(t *testing.T) {
	link := func(name string) string { return linkTo(t, name) }
	tests := []struct {
		name    string
		options userspace.TunnelOptions
		prepare func(t *testing.T, namespace *wgtest.Namespace, device string)
		wants   []string
	}{
		{name: "no such executable", options: userspace.TunnelOptions{Executable: "/nonexistent"}, wants: []string{"/nonexistent"}},
		{name: "it ends at once", options: userspace.TunnelOptions{Executable: link("failing")},
			wants: []string{"it ended at once; its log: no such luck"}},
		{name: "it never gets ready", options: userspace.TunnelOptions{Executable: link("hanging"), Timeout: time.Second},
			wants: []string{"it is not ready: ", "deadline", "I wait"}},
		{name: "it says nothing", options: userspace.TunnelOptions{Executable: link("silent")}, wants: []string{"its log: (empty)"}},
		{name: "a long log is cut", options: userspace.TunnelOptions{Executable: link("talking")}, wants: []string{"the end"}},
		{name: "a device of that name is there",
			prepare: func(t *testing.T, namespace *wgtest.Namespace, device string) {
				namespace.IP(t, "link", "add", device, "type", "veth")
			},
			wants: []string{"create TUN device"}},
		{name: "the device is in another namespace", options: userspace.TunnelOptions{Timeout: time.Second},
			prepare: func(t *testing.T, _ *wgtest.Namespace, device string) {
				wgtest.NewNamespace(t).NewTunnel(t, userspace.TunnelOptions{Device: device}).Ensure(t)
			},
			wants: []string{"serves /var/run/wireguard/", "folder of their own"}},
		{name: "bad name", options: userspace.TunnelOptions{Device: "../../etc/x"}, wants: []string{`"../../etc/x"`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			namespace := wgtest.NewNamespace(t)
			options := test.options
			if options.Device == "" {
				options.Device = wgtest.DeviceName()
			}
			options.RunDir = t.TempDir()
			if options.Executable == "" {
				options.Executable = executable(t)
			}
			if test.prepare != nil {
				test.prepare(t, namespace, options.Device)
			}
			before := children(t)
			tunnel := userspace.NewTunnel(options, slog.New(slog.DiscardHandler))
			namespace.Do(t, func() error {
				_, err := tunnel.Ensure(t.Context())
				if err == nil {
					return errors.New("Ensure succeeded")
				}
				for _, want := range append(test.wants, options.Device) {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("error %q does not say %q", err, want)
					}
				}
				if len(err.Error()) > 2048 {
					t.Errorf("the error has %d bytes", len(err.Error()))
				}
				return nil
			})
			if after := children(t); !maps.Equal(before, after) {
				t.Errorf("children before %v, after %v: what did not get ready is still there", before, after)
			}
		})
	}
}

// children returns the process ids of the children of this process, zombies included.
func children(t *testing.T) map[string]bool {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	pids := map[string]bool{}
	for _, stat := range stats {
		text, _ := os.ReadFile(stat) // gone since
		_, rest, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			pids[filepath.Base(filepath.Dir(stat))] = true
		}
	}
	return pids
}

// TestEnsureWaitsForTheLock: an agent that hangs with the lock makes the others fail, in time.
func TestEnsureWaitsForTheLock(t *testing.T) {
	device, runDir := wgtest.DeviceName(), t.TempDir()
	file, err := os.Create(filepath.Join(runDir, "tunnel-"+device+".lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	tunnel := userspace.NewTunnel(userspace.TunnelOptions{
		Executable: executable(t), Device: device, RunDir: runDir, Timeout: 200 * time.Millisecond}, slog.New(slog.DiscardHandler))
	if _, err := tunnel.Ensure(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), file.Name()) {
		t.Errorf("Ensure: %v, want %v and the lock's name", err, context.DeadlineExceeded)
	}
}

func TestStopNothing(t *testing.T) {
	if err := userspace.Stop(t.Context(), wgtest.DeviceName()); err != nil {
		t.Error(err)
	}
	if err := userspace.Stop(t.Context(), "a/b"); err == nil {
		t.Error("Stop of a/b succeeded")
	}
}

func executable(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// linkTo returns a link to the test binary by which it is one of the broken tunnels.
func linkTo(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(executable(t), path); err != nil {
		t.Fatal(err)
	}
	return path
}

func socketOf(device string) string { return "/var/run/wireguard/" + device + ".sock" }

func mtu(t *testing.T, namespace *wgtest.Namespace, device string) int {
	t.Helper()
	var size int
	namespace.Do(t, func() error {
		link, err := net.InterfaceByName(device)
		if err == nil {
			size = link.MTU
		}
		return err
	})
	return size
}

func kill(t *testing.T, pid int, signal unix.Signal) {
	t.Helper()
	if err := unix.Kill(pid, signal); err != nil {
		t.Fatal(err)
	}
}

func stop(t *testing.T, device string) {
	t.Helper()
	if err := userspace.Stop(t.Context(), device); err != nil {
		t.Fatal(err)
	}
}

// dead is true for a zombie, too: its parent here is the test.
func dead(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("not within %v: %s", patience, what)
}
