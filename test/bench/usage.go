package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// usage is what was used up to now.
type usage struct {
	// machine is the time of all processors that were not idle, whoever used them: programs, kernel,
	// interrupts.
	machine time.Duration
	// tunnels is the time of the tunnel processes on both nodes, user and system.
	tunnels time.Duration
	// carried is how many bytes went into the setting's device on the first node.
	carried uint64
}

func (u usage) minus(before usage) usage {
	return usage{u.machine - before.machine, u.tunnels - before.tunnels, u.carried - before.carried}
}

func (b *bed) usage(s setting) (u usage, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return u, err
	}
	if u.machine, err = parseMachine(string(text)); err != nil || s.device() == "" {
		return u, err
	}
	pids, err := b.tunnels()
	if err != nil {
		return u, err
	}
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return u, err
		}
		used, err := parseProcess(string(text))
		if err != nil {
			return u, err
		}
		u.tunnels += used
	}
	u.carried, err = b.carried(s.device())
	return u, err
}

// tick is the unit of the times in /proc (proc(5)); USER_HZ is 100 on every architecture that Go runs on.
const tick = 10 * time.Millisecond

// parseMachine reads /proc/stat: its first line is "cpu", user, nice, system, idle, iowait, irq, softirq, …
func parseMachine(text string) (time.Duration, error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 8 {
		return 0, fmt.Errorf("/proc/stat: %q", line)
	}
	return ticks(fields[1], fields[2], fields[3], fields[6], fields[7])
}

// parseProcess reads /proc/PID/stat: after the name in parentheses, utime and stime are the 12th and 13th.
func parseProcess(text string) (time.Duration, error) {
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/PID/stat: %q", text)
	}
	return ticks(fields[11], fields[12])
}

func ticks(counts ...string) (sum time.Duration, err error) {
	for _, count := range counts {
		n, err := strconv.ParseInt(count, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// sentBytes reads a file like /proc/net/dev: behind the device's name, the 9th number.
func sentBytes(path, device string) (uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		name, numbers, _ := strings.Cut(strings.TrimSpace(line), ":")
		if fields := strings.Fields(numbers); name == device && len(fields) > 8 {
			return strconv.ParseUint(fields[8], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s: no device %s", path, device)
}
