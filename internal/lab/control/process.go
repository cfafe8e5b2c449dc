package control

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/lab/netns"
)

// stopTime is how long a component may take to end by itself. The API server waits for its watches.
const stopTime = 10 * time.Second

// LogPath is the file that a component writes its log to.
func (p *Plane) LogPath(c Component) string { return p.path("run", string(c)+".log") }

func (p *Plane) pidPath(c Component) string { return p.path("run", string(c)+".pid") }

// launch starts a component as a daemon, which outlives the caller.
func (p *Plane) launch(c Component) error {
	log, err := os.OpenFile(p.LogPath(c), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open its log: %w", err)
	}
	defer log.Close()
	command := p.command(string(c), p.arguments(c)...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := p.inside(command); err != nil {
		return err
	}
	go func() { _ = command.Wait() }() // so that one that ends while the caller is there is no zombie
	if err := os.WriteFile(p.pidPath(c), []byte(strconv.Itoa(command.Process.Pid)+"\n"), 0o600); err != nil {
		return fmt.Errorf("write its process id: %w", err)
	}
	return nil
}

// command is one of the binaries. It gets nothing of the caller's environment: proxies, credentials and
// settings of Go's runtime are none of its business.
func (p *Plane) command(name string, arguments ...string) *exec.Cmd {
	command := exec.Command(filepath.Join(p.Options.Binaries, name), arguments...)
	command.Dir, command.Env = "/", []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.Options.Dir}
	return command
}

// inside starts a command in the plane's namespace.
func (p *Plane) inside(command *exec.Cmd) error {
	if p.Options.Namespace == "" {
		return command.Start()
	}
	return netns.View{Namespace: p.Options.Namespace}.Start(command)
}

// PID returns the process id of a component, 0 when it does not run. A process that got the id of one
// that ended does not count: it was not started with the plane's folder.
func (p *Plane) PID(c Component) int {
	text, err := os.ReadFile(p.pidPath(c))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || !p.runs(pid, c) {
		return 0
	}
	return pid
}

func (p *Plane) runs(pid int, c Component) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	if len(line) == 0 { // it has not got its arguments yet, execve(2) being at work, or has lost them on its way out
		return onItsWay(pid)
	}
	program, arguments, _ := bytes.Cut(line, []byte{0})
	return filepath.Base(string(program)) == string(c) && bytes.Contains(arguments, []byte("="+p.Options.Dir+"/"))
}

// onItsWay reports whether a process without arguments is more than the remains of one (proc_pid_stat(5)).
func onItsWay(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(text[bytes.LastIndexByte(text, ')')+1:]), " ")
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

// StopComponent asks a component to end, and ends it when it takes too long. That it does not run is
// not an error.
func (p *Plane) StopComponent(ctx context.Context, c Component) error {
	if err := p.end(ctx, c, unix.SIGTERM); err == nil || ctx.Err() != nil {
		return err
	}
	return p.KillComponent(ctx, c)
}

// KillComponent ends a component at once, as a crash does. That it does not run is not an error.
func (p *Plane) KillComponent(ctx context.Context, c Component) error {
	return p.end(ctx, c, unix.SIGKILL)
}

func (p *Plane) end(ctx context.Context, c Component, signal unix.Signal) error {
	return netns.EndFound(ctx, func() int { return p.PID(c) }, netns.Ending{What: string(c), Signal: signal, Wait: stopTime})
}

// LogTail returns the last lines of a file, indented.
func LogTail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "  " + err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "  " + strings.Join(all[max(0, len(all)-lines):], "\n  ")
}
