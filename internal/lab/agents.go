package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/api"
	"warren/internal/lab/control"
	"warren/internal/lab/netns"
)

// stopTime is how long an agent may take to end after SIGTERM.
const stopTime = 15 * time.Second

// errNoEncryption is the answer to commands about agents in a lab without them.
var errNoEncryption = errors.New("the lab was built with --no-encryption and has no agents")

// startAgents starts the agent of every node; that it gets ready is another matter (WaitReady).
func (l *Lab) startAgents(nodes []Node) error {
	for _, node := range nodes {
		if err := l.startAgent(node); err != nil {
			return fmt.Errorf("start the agent of %s: %w", node.Name, err)
		}
	}
	return nil
}

// startAgent starts the agent as a daemon: it outlives the caller and writes to the node's log.
func (l *Lab) startAgent(node Node) error {
	dirs := l.dirs(node)
	records := l.RecordDir()
	if l.Spec.Kube != nil {
		records = ""
	}
	config := agentConfig(node, dirs, records, *l.Spec.Agent)
	if err := os.WriteFile(dirs.config(), []byte(config), 0o600); err != nil {
		return fmt.Errorf("write its configuration: %w", err)
	}
	log, err := os.OpenFile(dirs.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open its log: %w", err)
	}
	defer log.Close()
	command := exec.Command(l.Spec.Agent.Binary, "agent", "--config", dirs.config())
	command.Dir, command.Env = "/", l.environment(node)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := l.nodeView(node).Start(command); err != nil {
		return fmt.Errorf("run %s: %w", l.Spec.Agent.Binary, err)
	}
	l.progress(fmt.Sprintf("agent of %s: pid %d, log %s", node.Name, command.Process.Pid, dirs.log()))
	if err := os.WriteFile(dirs.pid(), []byte(strconv.Itoa(command.Process.Pid)+"\n"), 0o600); err != nil {
		return fmt.Errorf("write its pid: %w", err)
	}
	go func() { _ = command.Wait() }() // so that an agent that ends while the caller is there is no zombie
	return nil
}

// makeDirs makes a node's directories and gives it a BPF file system.
func (l *Lab) makeDirs(node Node) error {
	dirs := l.dirs(node)
	for _, dir := range []string{dirs.state(), dirs.run(), dirs.wireguard(), l.RecordDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make its directories: %w", err)
		}
	}
	return mountBPF(dirs.bpf())
}

// StartAgents starts the agents of nodes where none runs, and waits until each is ready and has every
// node that has published a record as a peer.
func (l *Lab) StartAgents(ctx context.Context, wait time.Duration, names ...string) error {
	var nodes []Node
	for _, name := range names {
		node, err := l.agentNode(name)
		if err != nil {
			return err
		}
		if pid := l.AgentPID(node); pid != 0 {
			return fmt.Errorf("start the agent of %s: it runs already, pid %d", name, pid)
		}
		nodes = append(nodes, node)
	}
	published, err := l.published(ctx)
	if err != nil {
		return err
	}
	if err := l.startAgents(nodes); err != nil {
		return err
	}
	return l.waitFor(ctx, wait, nodes, func(n Node) []Node {
		return slices.DeleteFunc(l.Topology.Others(n.Name), func(other Node) bool { return !published(other.Name) })
	})
}

// published tells which nodes have a record.
func (l *Lab) published(ctx context.Context) (func(node string) bool, error) {
	if l.Spec.Kube == nil {
		return func(node string) bool { return exists(l.RecordPath(node)) }, nil
	}
	plane, err := l.Control()
	if err != nil {
		return nil, err
	}
	list, err := plane.Kubectl(ctx, "", "get", "warrennodes", "-o", "jsonpath={.items[*].metadata.name}")
	if err != nil {
		return nil, fmt.Errorf("list the records: %w", err)
	}
	return func(node string) bool { return slices.Contains(strings.Fields(list), node) }, nil
}

// StopAgent asks the agent of a node to end and waits until it has. None running is not an error.
func (l *Lab) StopAgent(ctx context.Context, name string) error {
	return l.endAgent(ctx, name, unix.SIGTERM)
}

// KillAgent ends the agent of a node at once, as a crash does.
func (l *Lab) KillAgent(ctx context.Context, name string) error {
	return l.endAgent(ctx, name, unix.SIGKILL)
}

func (l *Lab) endAgent(ctx context.Context, name string, signal unix.Signal) error {
	node, err := l.agentNode(name)
	if err != nil {
		return err
	}
	how := netns.Ending{What: "the agent of " + name, Signal: signal, Wait: stopTime}
	return netns.EndFound(ctx, func() int { return l.AgentPID(node) }, how)
}

func (l *Lab) agentNode(name string) (Node, error) {
	if l.Spec.Agent == nil {
		return Node{}, errNoEncryption
	}
	node, ok := l.Topology.Node(name)
	if !ok {
		return node, l.unknown(name)
	}
	return node, nil
}

// AgentPID returns the process id of a node's agent, 0 when none runs. It is found by where it lives
// and what it was started with, so a stale pid file cannot mislead.
func (l *Lab) AgentPID(node Node) int {
	pids, err := netns.Processes(node.Namespace)
	if err != nil {
		return 0
	}
	for _, pid := range pids {
		if isAgent(pid, l.dirs(node).config()) {
			return pid
		}
	}
	return 0
}

func isAgent(pid int, config string) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	args := strings.Split(string(bytes.TrimRight(line, "\x00")), "\x00")
	return len(args) > 3 && slices.Equal(args[1:4], []string{"agent", "--config", config})
}

// WaitReady waits until every agent is ready and has every other node of the lab as a peer. The error
// says what is missing and shows the end of the log.
func (l *Lab) WaitReady(ctx context.Context, wait time.Duration) error {
	return l.waitFor(ctx, wait, l.Topology.Nodes, func(n Node) []Node { return l.Topology.Others(n.Name) })
}

// waitFor waits until the agents are ready and have the peers that they should.
func (l *Lab) waitFor(ctx context.Context, wait time.Duration, nodes []Node, peers func(Node) []Node) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	l.progress("waiting until every agent has all its peers")
	for _, node := range nodes {
		if err := l.waitNode(ctx, node, peers); err != nil {
			return fmt.Errorf("the agent of %s is not ready: %w\nthe end of %s:\n%s", node.Name, err, l.dirs(node).log(), control.LogTail(l.dirs(node).log(), 15))
		}
	}
	return nil
}

func (l *Lab) waitNode(ctx context.Context, node Node, peers func(Node) []Node) error {
	client := l.dirs(node).client()
	for {
		status, err := client.Status(ctx)
		missing := missing(status, err, peers(node), func(n Node) ([]api.Key, bool) { return l.keysOf(ctx, n) })
		if missing == "" {
			return nil
		}
		if l.AgentPID(node) == 0 {
			return errors.New("it has ended")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s (%w)", missing, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// keysOf asks the agent of a node for the keys in its record. runs is false where none runs.
func (l *Lab) keysOf(ctx context.Context, node Node) (keys []api.Key, runs bool) {
	if l.AgentPID(node) == 0 {
		return nil, false
	}
	status, _ := l.dirs(node).client().Status(ctx) // no keys until it answers
	return status.Rotation.Keys, true
}

// missing says what an agent still lacks, "" when nothing. A peer whose agent runs has to be confirmed too, with a key that it
// has now: one that was rebuilt is known by the key of before for a while.
func missing(status api.Status, err error, peers []Node, keysOf func(Node) (keys []api.Key, runs bool)) string {
	if err != nil {
		return err.Error()
	}
	if !status.Ready {
		return "it says: " + strings.Join(status.NotReady, "; ")
	}
	for _, other := range peers {
		i := slices.IndexFunc(status.Peers, func(p api.Peer) bool { return p.Node == other.Name })
		if i < 0 || !status.Peers[i].Installed {
			return "it lacks the peer " + other.Name
		}
		peer := status.Peers[i]
		keys, runs := keysOf(other)
		if !runs {
			continue
		}
		if !slices.ContainsFunc(keys, func(k api.Key) bool { return k.Public == peer.PublicKey }) {
			return fmt.Sprintf("it knows %s by a key that this one does not have", other.Name)
		}
		if !peer.Encrypting && status.Mode != observe {
			return fmt.Sprintf("it does not encrypt to %s yet, which is %s", other.Name, peer.State)
		}
	}
	return ""
}

// observe is the mode in which nothing is encrypted.
const observe = "observe"
