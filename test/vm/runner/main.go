// Command runner runs a test program on another kernel, in a virtual machine under qemu's software
// emulation (no KVM needed). It is made for go test:
//
//	go test -exec "runner -kernel DIR -init GUEST" ./internal/netdev
//
// DIR is an unpacked Debian kernel package, GUEST the static program of test/vm/guest. The machine
// has the modules of the tests, the tools named by -tool, the package's folder and the test program;
// its exit code and output are the runner's. When the guest dies, which emulation does now and then,
// it is started once more. After a failure the kernel's messages are printed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// attempts is how often a machine is started whose guest dies.
const attempts = 2

// The parent's death signal of qemu is bound to the thread that started it: keep to one that lives as
// long as the process.
func init() { runtime.LockOSThread() }

func main() {
	var (
		kernelDir = flag.String("kernel", "", "folder with an unpacked Debian kernel package")
		guest     = flag.String("init", "", "the static program of test/vm/guest")
		memory    = flag.Int("memory", 1024, "memory of the machine in MiB")
		timeout   = flag.Duration("timeout", 8*time.Minute, "time limit of one run of the machine")
		tools     list
	)
	flag.Var(&tools, "tool", "program to put into the guest's /bin, with its libraries (repeatable)")
	flag.Parse()
	if *kernelDir == "" || *guest == "" || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: runner -kernel DIR -init GUEST [-tool NAME]... PROGRAM [ARGUMENT]...")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	result, err := run(ctx, options{
		kernelDir: *kernelDir, init: *guest, memory: *memory, timeout: *timeout, tools: tools, program: flag.Args(),
	})
	stop()
	// Only now that the files of the run are gone: whoever read the output may be gone too, and then
	// writing it ends this process (SIGPIPE).
	code := 1
	if err == nil {
		code, err = report(result, os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		code = 1
	}
	os.Exit(code)
}

type options struct {
	kernelDir, init string
	memory          int
	timeout         time.Duration
	tools           []string
	program         []string
}

// list is a flag that may be given more than once.
type list []string

func (l *list) String() string { return strings.Join(*l, " ") }

func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}

// run runs the program in a machine and leaves no file behind.
func run(ctx context.Context, o options) (outcome, error) {
	kernel, err := openKernel(o.kernelDir)
	if err != nil {
		return outcome{}, err
	}
	dir, err := os.MkdirTemp("", "warren-vm-")
	if err != nil {
		return outcome{}, err
	}
	defer os.RemoveAll(dir)
	work, err := os.Getwd()
	if err != nil {
		return outcome{}, err
	}
	content := image{kernel: kernel, init: o.init, tools: o.tools, program: o.program, dir: work, env: environment()}
	initramfs, err := content.writeFile(dir)
	if err != nil {
		return outcome{}, err
	}
	m := machine{kernel: kernel.image, initramfs: initramfs, memory: o.memory, timeout: o.timeout, dir: dir}
	return attempt(func() (outcome, error) { return m.run(ctx) }, os.Stderr)
}

// attempt runs a machine again when its guest died, and returns what became of it in the end. A death
// is shown even if the next attempt is good: it may be the kernel's, and no emulation's.
func attempt(run func() (outcome, error), stderr io.Writer) (outcome, error) {
	for left := attempts - 1; ; left-- {
		result, err := run()
		if err != nil || result.end != died || left == 0 {
			return result, err
		}
		showConsole(result, stderr)
		fmt.Fprintf(stderr, "runner: %s; once more\n", result.end)
	}
}

// report passes on what the program wrote and its code. Unless all is well, the messages of the
// kernel follow.
func report(result outcome, stdout, stderr io.Writer) (int, error) {
	if _, err := stdout.Write(result.output); err != nil {
		return 0, fmt.Errorf("pass on what the program wrote: %w", err)
	}
	if result.end != ended || result.code != 0 {
		showConsole(result, stderr)
	}
	if result.end != ended {
		return 0, errors.New(string(result.end))
	}
	return result.code, nil
}

func showConsole(result outcome, stderr io.Writer) {
	fmt.Fprintf(stderr, "--- console of the guest\n%s--- end of the console\n", result.console)
}
