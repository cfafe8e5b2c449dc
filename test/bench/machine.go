package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// describeMachine says on what the figures were taken, and what else it had to do.
func describeMachine() []string {
	var name unix.Utsname
	_ = unix.Uname(&name) // fails only for a bad address
	cpus, _ := os.ReadFile("/proc/cpuinfo")
	load, _ := os.ReadFile("/proc/loadavg")
	return []string{
		fmt.Sprintf("%s, %d processors", processor(string(cpus)), runtime.NumCPU()),
		fmt.Sprintf("Linux %s %s, %s", unix.ByteSliceToString(name.Release[:]), unix.ByteSliceToString(name.Machine[:]), runtime.Version()),
		"load when it began: " + strings.Join(strings.Fields(string(load))[:3], " "),
	}
}

// processor returns the model in /proc/cpuinfo.
func processor(cpuinfo string) string {
	for line := range strings.Lines(cpuinfo) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}
