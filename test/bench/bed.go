package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"warren/internal/lab"
	"warren/internal/lab/netns"
)

// bed is a lab of two nodes with one pod each, in which the settings take turns. Its agents run only while
// Warren is the setting.
//
//	p1 ── n1 ══ wire ══ n2 ── p1       measured: n1 → n2 and n1/p1 → n2/p1, over IPv4
type bed struct {
	*lab.Lab
	log    *slog.Logger
	binary string
	stop   []func()
}

// path is a pair of places between which traffic is measured.
type path struct {
	name     string
	from, to string // places of the lab
	address  netip.Addr
}

func newBed(ctx context.Context, binary string, log *slog.Logger) (b *bed, err error) {
	spec := lab.Spec{
		Name: fmt.Sprintf("bench-%d", os.Getpid()), Nodes: lab.NodeNumbers(2), Pods: 1, CNI: lab.CNIRoutes, MTU: 1500,
		Agent: &lab.AgentOptions{Binary: binary},
	}
	l, err := lab.Up(ctx, spec, lab.Options{})
	if err != nil {
		return nil, errors.Join(err, lab.Down(context.WithoutCancel(ctx), spec.Name))
	}
	b = &bed{Lab: l, log: log, binary: binary}
	err = warren{binary}.leave(ctx, b)
	for _, p := range b.paths(inClear{}) {
		err = errors.Join(err, b.listen(p))
	}
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// close removes the lab with everything in it.
func (b *bed) close() error {
	for _, stop := range b.stop {
		stop()
	}
	return lab.Down(context.Background(), b.Spec.Name)
}

// paths are the two that are measured in a setting.
func (b *bed) paths(s setting) []path {
	n2 := b.Topology.Nodes[1]
	return []path{
		{"host → host", "n1", "n2", s.hostAddress(n2)},
		{"pod → pod", "n1/p1", "n2/p1", n2.Pods[0].Addresses[0]},
	}
}

// listen runs an iperf3 server in the place that a path leads to, until the bed is closed.
func (b *bed) listen(p path) error {
	command := exec.Command("iperf3", "--server", "--forceflush")
	output, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := b.start(p.to, command); err != nil {
		return err
	}
	b.stop = append(b.stop, func() { _, _ = command.Process.Kill(), command.Wait() })
	lines := bufio.NewReader(output)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return fmt.Errorf("start iperf3 in %s: %w", p.to, err)
		}
		if strings.HasPrefix(line, "Server listening") {
			go func() { _, _ = io.Copy(io.Discard, lines) }()
			return nil
		}
	}
}

// start starts a command in a place of the lab.
func (b *bed) start(name string, command *exec.Cmd) error {
	place, err := b.Place(name)
	if err != nil {
		return err
	}
	command.Env = place.Env
	if err := place.Start(command); err != nil {
		return fmt.Errorf("start %s in %s: %w", command.Args[0], name, err)
	}
	return nil
}

// output runs a command in a place of the lab and returns what it prints.
func (b *bed) output(ctx context.Context, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	var stdout, stderr strings.Builder
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := b.start(name, command); err != nil {
		return "", err
	}
	if err := command.Wait(); err != nil {
		return stdout.String(), fmt.Errorf("%s in %s: %w: %s", strings.Join(args, " "), name, err, stderr.String())
	}
	return stdout.String(), nil
}

// ip runs lines of `ip -batch` in a place.
func (b *bed) ip(ctx context.Context, name string, lines ...string) error {
	place, err := b.Place(name)
	if err != nil {
		return err
	}
	return netns.Batch(ctx, netns.Script{Namespace: place.Namespace, Tool: "ip", Lines: lines})
}

// tunnels returns the process ids of the tunnel processes on both nodes.
func (b *bed) tunnels() ([]int, error) {
	inside, err := netns.Processes(b.Topology.Nodes[0].Namespace, b.Topology.Nodes[1].Namespace)
	var pids []int
	for _, pid := range inside {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // of a process that ended: empty
		if isTunnel(string(line)) {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// isTunnel says whether a command line, with a NUL after each argument as in /proc, is of a tunnel process:
// Warren's, or WireGuard's own.
func isTunnel(commandLine string) bool {
	program, arguments, _ := strings.Cut(commandLine, "\x00")
	return filepath.Base(program) == stockName || strings.HasPrefix(arguments, "tunnel\x00")
}

// measure takes one turn of a setting: on each path bulk TCP with one and with eight streams, and
// request/response.
func (b *bed) measure(ctx context.Context, s setting, length time.Duration) (all []figure, err error) {
	if err := s.enter(ctx, b); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.leave(context.WithoutCancel(ctx), b)) }()
	for _, p := range b.paths(s) {
		if err := b.warmUp(ctx, p); err != nil {
			return nil, err
		}
		for _, streams := range []int{1, 8} {
			figures, err := b.bulk(ctx, s, p, streams, length)
			if err != nil {
				return nil, err
			}
			all = append(all, figures...)
		}
		figures, err := b.exchange(p, length)
		if err != nil {
			return nil, err
		}
		all = append(all, figures...)
	}
	return all, nil
}

// warmUp returns when the path answers (neighbours are known, the handshake is done) and the tunnel processes, which
// are new, have touched the memory that they will use.
func (b *bed) warmUp(ctx context.Context, p path) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		_, err := b.exchange(p, 20*time.Millisecond)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			return err
		}
	}
	_, err := b.iperf(ctx, p, 8, "--bytes", "64M")
	return err
}

// carried returns how many bytes a device of the first node has sent.
func (b *bed) carried(device string) (bytes uint64, err error) {
	err = netns.Do(b.Topology.Nodes[0].Namespace, func() (err error) {
		bytes, err = sentBytes("/proc/thread-self/net/dev", device)
		return err
	})
	return bytes, err
}
