package lab

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"warren/internal/lab/netns"
)

// settle waits until every device of nodes, pods and router can carry packets: the kernel notices
// a carrier with a delay of up to a second, and IPv6 addresses can be used only then.
func settle(ctx context.Context, namespaces []string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for _, namespace := range namespaces {
		if err := settleOne(ctx, namespace); err != nil {
			return fmt.Errorf("wait until the devices in namespace %s are up: %w", namespace, err)
		}
	}
	return nil
}

func settleOne(ctx context.Context, namespace string) error {
	for {
		var ready bool
		err := netns.Do(namespace, func() (err error) { ready, err = settled(); return err })
		if err != nil || ready {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// settled reports whether all devices of the thread's namespace run and no IPv6 address is tentative.
func settled() (bool, error) {
	devices, err := net.Interfaces()
	if err != nil {
		return false, fmt.Errorf("list devices: %w", err)
	}
	for _, device := range devices {
		// A bridge without ports, on a node without pods, never runs.
		if device.Flags&net.FlagRunning == 0 && strings.HasPrefix(device.Name, "eth") {
			return false, nil
		}
	}
	addresses, err := os.ReadFile("/proc/thread-self/net/if_inet6")
	if err != nil {
		return false, fmt.Errorf("list IPv6 addresses: %w", err)
	}
	return !tentative(string(addresses)), nil
}

// tentative reads /proc/net/if_inet6, whose fifth column has the flags of an address, and reports
// whether one may not be used yet (IFA_F_TENTATIVE, linux/if_addr.h).
func tentative(text string) bool {
	const flagTentative = 0x40
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 6 || strings.HasPrefix(fields[5], "cni") {
			continue
		}
		if flags, err := strconv.ParseUint(fields[4], 16, 32); err == nil && flags&flagTentative != 0 {
			return true
		}
	}
	return false
}
