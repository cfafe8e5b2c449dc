package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"warren/internal/cluster"
	"warren/internal/lab"
	"warren/internal/wireguard/userspace"
)

// setting is a way in which traffic crosses the wire of the bed.
type setting interface {
	name() string
	// device is what all traffic of the setting goes through on a node; empty for none.
	device() string
	// hostAddress is where a node is reached.
	hostAddress(n lab.Node) netip.Addr
	enter(ctx context.Context, b *bed) error
	leave(ctx context.Context, b *bed) error
}

// inClear is the lab as it is without Warren.
type inClear struct{}

func (inClear) name() string                      { return "clear" }
func (inClear) device() string                    { return "" }
func (inClear) hostAddress(n lab.Node) netip.Addr { return n.Addresses[0] }
func (inClear) enter(context.Context, *bed) error { return nil }
func (inClear) leave(context.Context, *bed) error { return nil }

// warren is the lab with its agents, as a user has them.
type warren struct{ binary string }

func (warren) name() string                      { return "Warren" }
func (warren) device() string                    { return "warren0" }
func (warren) hostAddress(n lab.Node) netip.Addr { return n.Addresses[0] }

func (w warren) enter(ctx context.Context, b *bed) error {
	b.Spec.Agent.Binary = w.binary
	return b.StartAgents(ctx, time.Minute, "n1", "n2")
}

func (w warren) leave(ctx context.Context, b *bed) error {
	for _, node := range []string{"n1", "n2"} {
		if err := b.StopAgent(ctx, node); err != nil {
			return err
		}
	}
	for _, node := range []string{"n1", "n2"} {
		if _, err := b.output(ctx, node, w.binary, "cleanup"); err != nil {
			return err
		}
	}
	return nil
}

// plain is WireGuard as it is set up by hand, with the engine of Warren's tunnel process: addresses of its
// own for the nodes, routes into the device, and the MTU that fits set on everything inside.
type plain struct{ binary string }

const (
	plainDevice = "plain0"
	plainPort   = 51820
	plainMTU    = 1440 // the largest on a wire of 1500 over IPv4, as Warren's
	plainMSS    = plainMTU - 40
)

func (plain) name() string   { return "plain WireGuard" }
func (plain) device() string { return plainDevice }

func (plain) hostAddress(n lab.Node) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 99, 0, byte(n.Number)})
}

func (p plain) enter(ctx context.Context, b *bed) error {
	var keys [2]cluster.PrivateKey
	for i := range keys {
		key, err := cluster.NewPrivateKey()
		if err != nil {
			return err
		}
		keys[i] = key
	}
	for i, node := range b.Topology.Nodes {
		if err := p.enterNode(ctx, b, node, b.Topology.Nodes[1-i], keys[i], keys[1-i].Public()); err != nil {
			return fmt.Errorf("set up plain WireGuard on %s: %w", node.Name, err)
		}
	}
	return nil
}

// enterNode makes one end of the tunnel.
func (p plain) enterNode(ctx context.Context, b *bed, node, other lab.Node, key cluster.PrivateKey, peer cluster.PublicKey) error {
	command := exec.Command(p.binary, "tunnel", "--device", plainDevice, "--mtu", fmt.Sprint(plainMTU))
	// As the agent starts its own: processors are shared out by session (sched(7), autogroup), and by niceness.
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := b.start(node.Name, command); err != nil {
		return err
	}
	if err := userspace.Prefer(command.Process.Pid); err != nil {
		return err
	}
	go func() { _ = command.Wait() }() // it ends with its device
	private := key.Bytes()
	if err := configure(filepath.Join(b.RunDir(node.Name), "..", "wireguard", plainDevice+".sock"),
		"private_key="+hex.EncodeToString(private[:]), fmt.Sprintf("listen_port=%d", plainPort), "public_key="+hex.EncodeToString(peer[:]),
		fmt.Sprintf("endpoint=%s", netip.AddrPortFrom(other.Addresses[0], plainPort)),
		fmt.Sprintf("allowed_ip=%s/32", p.hostAddress(other)), fmt.Sprintf("allowed_ip=%s", other.Prefixes[0])); err != nil {
		return err
	}
	return p.route(ctx, b, node, other.Pods[0].Addresses[0])
}

// route leads to the other node and its pod through the device, with the MTU that it has.
func (p plain) route(ctx context.Context, b *bed, node lab.Node, pod netip.Addr) error {
	if err := b.ip(ctx, node.Name,
		fmt.Sprintf("address add %s/24 dev %s", p.hostAddress(node), plainDevice),
		fmt.Sprintf("link set %s up", plainDevice),
		fmt.Sprintf("route add %s dev %s", pod, plainDevice)); err != nil {
		return err
	}
	gateway := node.Prefixes[0].Addr().Next()
	return b.ip(ctx, node.Name+"/p1", fmt.Sprintf("route add %s via %s mtu %d advmss %d", pod, gateway, plainMTU, plainMSS))
}

// configure sets a userspace device by its socket (https://www.wireguard.com/xplatform/).
func configure(path string, lines ...string) error {
	conn, err := dialUnix(path)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "set=1\n%s\n\n", strings.Join(lines, "\n")); err != nil {
		return err
	}
	answer := make([]byte, 64)
	n, err := conn.Read(answer)
	if err != nil {
		return err
	}
	if text := strings.TrimSpace(string(answer[:n])); text != "errno=0" {
		return fmt.Errorf("configure %s: %s", path, text)
	}
	return nil
}

// dialUnix waits until somebody listens.
func dialUnix(path string) (net.Conn, error) {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("unix", path)
		if err == nil || time.Now().After(deadline) {
			return conn, err
		}
	}
}

// leave deletes the devices, with which the processes and the routes into them end.
func (p plain) leave(ctx context.Context, b *bed) error {
	for i, node := range b.Topology.Nodes {
		pod := b.Topology.Nodes[1-i].Pods[0].Addresses[0]
		if err := b.ip(ctx, node.Name+"/p1", fmt.Sprintf("route delete %s", pod)); err != nil {
			return err
		}
		if err := b.ip(ctx, node.Name, fmt.Sprintf("link delete %s", plainDevice)); err != nil {
			return err
		}
	}
	return p.ended(ctx, b)
}

// ended waits until the tunnel processes are gone, whose sockets would be in the way of the next ones.
func (plain) ended(ctx context.Context, b *bed) error {
	for {
		pids, err := b.tunnels()
		if err != nil || len(pids) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}
