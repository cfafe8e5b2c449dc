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

// byHand is WireGuard as it is set up by hand: addresses of its own for the nodes, routes into the device,
// and the MTU that fits set on everything inside.
type byHand struct {
	called string
	// engine is the command line of the process that makes handDevice.
	engine []string
}

const (
	handDevice = "plain0"
	handPort   = 51820
	handMTU    = 1440 // the largest on a wire of 1500 over IPv4, as Warren's
	handMSS    = handMTU - 40
)

// plainWireGuard is what one would have without Warren: WireGuard's own program.
func plainWireGuard(stock string) byHand {
	return byHand{"plain WireGuard", []string{stock, "-f", handDevice}}
}

// warrenEngine is Warren without its datapath: its tunnel process alone.
func warrenEngine(binary string) byHand {
	return byHand{"Warren's engine", []string{binary, "tunnel", "--device", handDevice}}
}

func (h byHand) name() string { return h.called }
func (byHand) device() string { return handDevice }

func (byHand) hostAddress(n lab.Node) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 99, 0, byte(n.Number)})
}

func (h byHand) enter(ctx context.Context, b *bed) error {
	var keys [2]cluster.PrivateKey
	for i := range keys {
		key, err := cluster.NewPrivateKey()
		if err != nil {
			return err
		}
		keys[i] = key
	}
	for i, node := range b.Topology.Nodes {
		if err := h.enterNode(ctx, b, node, b.Topology.Nodes[1-i], keys[i], keys[1-i].Public()); err != nil {
			return fmt.Errorf("set up %s on %s: %w", h.called, node.Name, err)
		}
	}
	return nil
}

// enterNode makes one end of the tunnel.
func (h byHand) enterNode(ctx context.Context, b *bed, node, other lab.Node, key cluster.PrivateKey, peer cluster.PublicKey) error {
	command := exec.Command(h.engine[0], h.engine[1:]...)
	// Either engine as the agent starts its own: processors are shared out by session (sched(7), autogroup), and by
	// niceness.
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := b.start(node.Name, command); err != nil {
		return err
	}
	if err := userspace.Prefer(command.Process.Pid); err != nil {
		return err
	}
	go func() { _ = command.Wait() }() // it ends with its device
	private := key.Bytes()
	if err := configure(filepath.Join(b.RunDir(node.Name), "..", "wireguard", handDevice+".sock"),
		"private_key="+hex.EncodeToString(private[:]), fmt.Sprintf("listen_port=%d", handPort), "public_key="+hex.EncodeToString(peer[:]),
		fmt.Sprintf("endpoint=%s", netip.AddrPortFrom(other.Addresses[0], handPort)),
		fmt.Sprintf("allowed_ip=%s/32", h.hostAddress(other)), fmt.Sprintf("allowed_ip=%s", other.Prefixes[0])); err != nil {
		return err
	}
	return h.route(ctx, b, node, other.Pods[0].Addresses[0])
}

// route leads to the other node and its pod through the device, with the MTU that it has.
func (h byHand) route(ctx context.Context, b *bed, node lab.Node, pod netip.Addr) error {
	if err := b.ip(ctx, node.Name,
		fmt.Sprintf("address add %s/24 dev %s", h.hostAddress(node), handDevice),
		fmt.Sprintf("link set %s mtu %d up", handDevice, handMTU),
		fmt.Sprintf("route add %s dev %s", pod, handDevice)); err != nil {
		return err
	}
	gateway := node.Prefixes[0].Addr().Next()
	return b.ip(ctx, node.Name+"/p1", fmt.Sprintf("route add %s via %s mtu %d advmss %d", pod, gateway, handMTU, handMSS))
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
func (h byHand) leave(ctx context.Context, b *bed) error {
	for i, node := range b.Topology.Nodes {
		pod := b.Topology.Nodes[1-i].Pods[0].Addresses[0]
		if err := b.ip(ctx, node.Name+"/p1", fmt.Sprintf("route delete %s", pod)); err != nil {
			return err
		}
		if err := b.ip(ctx, node.Name, fmt.Sprintf("link delete %s", handDevice)); err != nil {
			return err
		}
	}
	return h.ended(ctx, b)
}

// ended waits until the tunnel processes are gone, whose sockets would be in the way of the next ones.
func (byHand) ended(ctx context.Context, b *bed) error {
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
