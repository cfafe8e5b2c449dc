package netns

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Do runs f on a thread of its own inside the namespace. Sockets that f opens belong to the namespace
// for good and may be used from anywhere. f must not start goroutines that expect the namespace.
func Do(name string, f func() error) error {
	return onThread(func() error {
		if err := join(name); err != nil {
			return err
		}
		return f()
	})
}

// onThread runs f on a thread that ends with it, so that nothing else ever runs on a thread whose
// namespaces were changed.
func onThread(f func() error) error {
	result := make(chan error, 1)
	go func() {
		// Never unlocked: the runtime ends a thread whose goroutine ends locked.
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The first thread cannot end, and /proc/self would show its namespaces for the whole
			// process. It is held here, so the next try gets another one.
			result <- onThread(f)
			runtime.UnlockOSThread()
			return
		}
		result <- f()
	}()
	return <-result
}

// join moves the calling thread into the namespace.
func join(name string) error {
	file, err := os.Open(Path(name))
	if err != nil {
		return fmt.Errorf("open namespace %s: %w", name, err)
	}
	defer file.Close()
	if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter namespace %s: %w", name, err)
	}
	return nil
}
