//go:build amd64

// Command guest is the first and only program of a test machine (PID 1): it mounts what programs
// expect, loads the kernel modules of the job, runs the job's program, and ends the machine with
// the program's exit code. It is built static, for the runner to put into the initial file system.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"warren/test/vm/job"
)

func main() {
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		code = job.InitFailed
	}
	drain(os.Stderr)
	exit(code)
}

// exit ends the machine; see exit_amd64.s for the instruction.
func exit(code int) {
	if err := unix.Ioperm(job.ExitPort, 1, 1); err != nil {
		fmt.Fprintf(os.Stderr, "guest: open port %#x: %v\n", job.ExitPort, err)
	}
	outb(job.ExitPort, job.Byte(code))
	// Not reached. When PID 1 returns the kernel panics, which the runner takes for what it is.
}

// outb writes one byte to an I/O port.
func outb(port uint16, value uint8)

// run returns the code of the job's program.
func run() (int, error) {
	if err := mountAll(); err != nil {
		return 0, err
	}
	if err := makeFolders(); err != nil {
		return 0, err
	}
	text, err := os.ReadFile(job.Path)
	if err != nil {
		return 0, fmt.Errorf("read the job: %w", err)
	}
	var task job.Job
	if err := json.Unmarshal(text, &task); err != nil {
		return 0, fmt.Errorf("read the job: %w", err)
	}
	if err := loadModules(task.Modules); err != nil {
		return 0, err
	}
	if err := loopbackUp(); err != nil {
		return 0, err
	}
	output, err := openRaw(job.Output)
	if err != nil {
		return 0, err
	}
	defer drain(output)
	return runProgram(task, output)
}

// mounts are in order: a mount point may be inside an earlier mount.
var mounts = []struct{ kind, target string }{
	{"devtmpfs", "/dev"},
	{"proc", "/proc"},
	{"sysfs", "/sys"},
	{"bpf", "/sys/fs/bpf"},
}

func mountAll() error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.target, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.target, err)
		}
	}
	return nil
}

// folders that programs write to; the whole file system is memory.
var folders = []string{"/tmp", "/run", "/var/lib", "/etc"}

func makeFolders() error {
	for _, folder := range folders {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	return os.Symlink("/run", "/var/run")
}

func loadModules(paths []string) error {
	for _, path := range paths {
		if err := loadModule(path); err != nil {
			return fmt.Errorf("load %s: %w", filepath.Base(path), err)
		}
	}
	return nil
}

func loadModule(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.FinitModule(int(file.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return os.Remove(path) // the file is memory
}

func loopbackUp() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bring up the loopback: %w", err)
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("bring up the loopback: %w", err)
	}
	return nil
}

// openRaw opens a serial port that passes every byte as it is: no carriage returns, no echo.
func openRaw(path string) (*os.File, error) {
	port, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	raw := unix.Termios{Cflag: unix.CS8 | unix.CREAD | unix.CLOCAL | unix.B115200, Ispeed: unix.B115200, Ospeed: unix.B115200}
	if err := unix.IoctlSetTermios(int(port.Fd()), unix.TCSETS, &raw); err != nil {
		return nil, fmt.Errorf("set up %s: %w", path, err)
	}
	return port, nil
}

// drain waits until all that was written has left the port (tcdrain): the machine ends without
// asking. Standard error may be no port at all, when the kernel found no console.
func drain(port *os.File) { _ = unix.IoctlSetInt(int(port.Fd()), unix.TCSBRK, 1) }

func runProgram(task job.Job, output *os.File) (int, error) {
	input, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer input.Close()
	process, err := os.StartProcess(task.Args[0], task.Args, &os.ProcAttr{
		Dir:   task.Dir,
		Env:   task.Env,
		Files: []*os.File{input, output, output},
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", task.Args[0], err)
	}
	status, err := reapUntil(process.Pid)
	switch {
	case err != nil:
		return 0, fmt.Errorf("wait for %s: %w", task.Args[0], err)
	case status.Signaled():
		fmt.Fprintf(os.Stderr, "guest: %s was ended by signal %v\n", task.Args[0], status.Signal())
		return job.MaxCode, nil
	}
	return min(status.ExitStatus(), job.MaxCode), nil
}

// reapUntil waits for the process, and meanwhile for every other child: orphans belong to PID 1, and
// one that nobody waits for looks as if it still ran.
func reapUntil(pid int) (unix.WaitStatus, error) {
	for {
		var status unix.WaitStatus
		ended, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, err
		case ended == pid && (status.Exited() || status.Signaled()):
			return status, nil
		}
	}
}
