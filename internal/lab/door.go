package lab

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"warren/internal/lab/control"
)

// letIn makes the API server answer on a loopback port of the caller's network namespace, the same one as before
// if nobody else has taken it. The forwarder gets the open socket and lives on the node: it ends with the
// node, and nothing in the machine's own namespace can send to the lab but through it.
func (l *Lab) letIn(plane *control.Plane) error {
	listener, err := l.listen()
	if err != nil {
		return err
	}
	defer listener.Close()
	file, err := listener.File()
	if err != nil {
		return err
	}
	defer file.Close()
	command := exec.Command(l.Spec.Kube.Forwarder, "lab", "forward", plane.Server().String())
	command.Dir, command.ExtraFiles = "/", []*os.File{file}
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	node, _ := l.Topology.Node(controlNode)
	if err := l.nodeView(node).Start(command); err != nil {
		return err
	}
	go func() { _ = command.Wait() }()
	at := listener.Addr().(*net.TCPAddr).AddrPort()
	if err := os.WriteFile(l.portPath(), []byte(at.String()), 0o600); err != nil {
		return err
	}
	_, err = plane.Kubeconfig(control.Client{User: "admin", Groups: []string{"system:masters"}, Server: at, Path: l.Kubeconfig()})
	return err
}

func (l *Lab) portPath() string { return filepath.Join(l.controlDir(), "forwarded") }

func (l *Lab) listen() (*net.TCPListener, error) {
	before, err := os.ReadFile(l.portPath())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if at, err := netip.ParseAddrPort(string(before)); err == nil {
		if listener, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(at)); err == nil {
			return listener, nil
		}
	}
	return net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
}
