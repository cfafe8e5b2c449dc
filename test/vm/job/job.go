// Package job is what the runner asks of the guest: one program, run once, in a virtual machine that
// ends with it. The runner puts it into the initial file system, the guest's init reads it there.
//
//	runner:  initial file system = init + modules + tools + program + job
//	guest:   init reads the job, loads the modules, runs the program, ends the machine with its code
package job

// Path of the job in the guest: JSON.
const Path = "/job.json"

// Init is where the kernel looks for the first program of an initial file system.
const Init = "/init"

// The serial ports: the kernel and init speak on the first, so that what the program writes on the
// second is nothing but the program's.
const (
	Console = "/dev/ttyS0"
	Output  = "/dev/ttyS1"
)

// ExitPort is the I/O port of the isa-debug-exit device: writing a byte b there ends the machine, and
// qemu exits with b<<1 | 1. An even code means that the guest ended in another way.
const ExitPort = 0xf4

// The codes that init ends the machine with.
const (
	// MaxCode is the largest code of a program; larger ones (a signal is 128 + its number) become
	// MaxCode.
	MaxCode = 100
	// InitFailed: the program was not run; the console says why.
	InitFailed = 101
)

// Job is a program to run.
type Job struct {
	// Modules are paths of kernel modules in the guest, in the order in which to load them.
	Modules []string
	// Args are the program's path and its arguments.
	Args []string
	// Env is its whole environment, as KEY=value.
	Env []string
	// Dir is its working directory.
	Dir string
}

// offset keeps the codes apart from those that qemu itself exits with. Without it, 1 for a machine
// that could not even be started would read as success.
const offset = 16

// Byte is what the guest writes to ExitPort for an exit code from 0 to InitFailed.
func Byte(code int) uint8 { return uint8(code + offset) }

// Code is the guest's exit code, by the exit code of qemu; ok is false when the guest wrote none.
func Code(qemu int) (code int, ok bool) {
	code = qemu>>1 - offset
	return code, qemu&1 == 1 && code >= 0 && code <= InitFailed
}

// InGuest is the environment variable that is set in the guest, and only there.
const InGuest = "WARREN_VM"
