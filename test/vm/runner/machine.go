package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"warren/test/vm/job"
)

// machine is how to start a virtual machine.
type machine struct {
	kernel    string // image
	initramfs string
	memory    int // MiB
	timeout   time.Duration
	dir       string // of what it writes
}

// outcome is what became of one run of a machine.
type outcome struct {
	end end
	// code of the program, when it ended.
	code int
	// output of the program, and what kernel and init said.
	output, console []byte
}

// end is how a run came to its end.
type end string

// The ends of a run.
const (
	ended end = "the program ended"
	// died: without a code, as after a panic of the kernel.
	died end = "the guest died"
	late end = "the guest did not end in time"
)

// run starts the machine and waits for its end. An error means that there was no run.
func (m machine) run(ctx context.Context) (outcome, error) {
	console, output := filepath.Join(m.dir, "console"), filepath.Join(m.dir, "output")
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", m.arguments(console, output)...)
	qemu.Stderr = os.Stderr
	// Were the runner killed, nobody else would end the machine.
	qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := qemu.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return outcome{}, fmt.Errorf("start the virtual machine: %w", err)
	}
	result := outcome{end: died}
	if code, ok := job.Code(qemu.ProcessState.ExitCode()); ok {
		result.end, result.code = ended, code
	} else if ctx.Err() != nil {
		result.end = late
	}
	if result.console, err = os.ReadFile(console); err != nil {
		return outcome{}, fmt.Errorf("read what the kernel said: %w", err)
	}
	if result.output, err = os.ReadFile(output); err != nil {
		return outcome{}, fmt.Errorf("read what the program wrote: %w", err)
	}
	return result, nil
}

// arguments of qemu. One processor: with several, multi-threaded emulation makes about one boot in a
// hundred panic while the kernel patches its jump labels. oops=panic turns a bug that the kernel
// survives into the death of the guest, so that no test passes over it.
func (m machine) arguments(console, output string) []string {
	return []string{
		"-machine", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", strconv.Itoa(m.memory),
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-monitor", "none",
		"-serial", "file:" + console,
		"-serial", "file:" + output,
		"-device", fmt.Sprintf("isa-debug-exit,iobase=%#x,iosize=4", job.ExitPort),
		"-kernel", m.kernel, "-initrd", m.initramfs,
		"-append", "console=ttyS0 quiet panic=-1 oops=panic random.trust_cpu=on mitigations=off",
	}
}
