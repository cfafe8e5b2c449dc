package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"warren/deploy"
	"warren/internal/lab/control"
)

// KubeOptions make a lab one with Kubernetes: a control plane on the first node, a Node object for each
// node, and pods that CNI plugins attach.
type KubeOptions struct {
	// Binaries is the absolute path of the folder with Kubernetes' binaries and the CNI plugins.
	Binaries string `json:"binaries"`
	// Forwarder is the absolute path of a warren that lets the machine's own clients in to the API server.
	Forwarder string `json:"forwarder"`
}

func (k KubeOptions) validate(nodes []int) []error {
	var problems []error
	for _, path := range []string{k.Binaries, k.Forwarder} {
		if !filepath.IsAbs(path) {
			problems = append(problems, fmt.Errorf("Kubernetes in %q: not an absolute path", path))
		}
	}
	if !slices.Contains(nodes, 1) {
		problems = append(problems, fmt.Errorf("Kubernetes without %s: the control plane is on it", controlNode))
	}
	return problems
}

// controlNode is the node with the control plane.
const controlNode = "n1"

// The namespace and the ServiceAccount of the agents.
const (
	agentNamespace = "warren-system"
	agentAccount   = "warren"
)

// ErrNoKube is the answer to questions about Kubernetes in a lab without it.
var ErrNoKube = errors.New("the lab was built without --kube and has no control plane")

func (l *Lab) controlDir() string { return filepath.Join(labDir(l.Spec.Name), "control") }

// Kubeconfig is the file with which kubectl on this machine administrates the lab's cluster.
func (l *Lab) Kubeconfig() string { return filepath.Join(labDir(l.Spec.Name), "kubeconfig") }

// Control returns the lab's control plane; ErrNoKube where there is none.
func (l *Lab) Control() (*control.Plane, error) {
	if l.Spec.Kube == nil {
		return nil, ErrNoKube
	}
	return control.Open(l.controlDir())
}

// makeCluster starts the control plane and makes what it holds of the lab.
func (l *Lab) makeCluster(ctx context.Context) error {
	if err := l.startControl(ctx); err != nil {
		return err
	}
	if l.Spec.Agent != nil {
		if err := l.install(ctx); err != nil {
			return err
		}
	}
	return l.register(ctx, l.Topology.Nodes)
}

// startControl starts the control plane, or what does not run of it, and lets clients of this machine in.
func (l *Lab) startControl(ctx context.Context) error {
	node, _ := l.Topology.Node(controlNode)
	l.progress(fmt.Sprintf("control plane on %s: etcd and kube-apiserver at %s", node.Name, node.Addresses[0]))
	plane, err := control.Start(ctx, control.Options{
		Dir: l.controlDir(), Binaries: l.Spec.Kube.Binaries, Namespace: node.Namespace,
		Address: node.Addresses[0], Names: append(texts(node.Addresses[1:]), node.Name),
	})
	if err != nil {
		return err
	}
	if err := l.letIn(plane); err != nil {
		return fmt.Errorf("let clients of this machine in to the API server: %w", err)
	}
	return nil
}

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

// install makes what agents need in a cluster: their resources, and what they may do.
func (l *Lab) install(ctx context.Context) error {
	plane, err := l.Control()
	if err != nil {
		return err
	}
	if _, err := plane.Kubectl(ctx, withoutPods(deploy.Manifest), "apply", "--server-side", "--filename=-"); err != nil {
		return fmt.Errorf("install Warren: %w", err)
	}
	if _, err := plane.Kubectl(ctx, "", "wait", "--for=condition=Established", "--timeout=60s", "crd/warrennodes.warren.network", "crd/warrenconfigs.warren.network"); err != nil {
		return fmt.Errorf("install Warren: %w", err)
	}
	return nil
}

// withoutPods leaves out of a manifest what would run the agents: in a lab they are processes.
func withoutPods(manifest string) string {
	documents := strings.Split(manifest, "\n---\n")
	return strings.Join(slices.DeleteFunc(documents, func(d string) bool { return strings.Contains("\n"+d+"\n", "\nkind: DaemonSet\n") }), "\n---\n")
}

// register makes Node objects, as kubelets would, and gives each agent an identity of its own: a token that
// is bound to its Node and goes with it.
func (l *Lab) register(ctx context.Context, nodes []Node) error {
	plane, err := l.Control()
	if err != nil {
		return err
	}
	l.progress("Node objects: " + strings.Join(names(nodes), " "))
	if _, err := plane.Kubectl(ctx, string(nodeObjects(nodes)), "create", "--filename=-"); err != nil {
		return fmt.Errorf("make the Node objects: %w", err)
	}
	if l.Spec.Agent == nil {
		return nil
	}
	for _, node := range nodes {
		token, err := plane.Kubectl(ctx, "", "create", "token", agentAccount, "--namespace="+agentNamespace,
			"--bound-object-kind=Node", "--bound-object-name="+node.Name, "--duration=8760h")
		if err != nil {
			return fmt.Errorf("make the token of %s: %w", node.Name, err)
		}
		if _, err := plane.Kubeconfig(control.Client{User: node.Name, Token: strings.TrimSpace(token), Path: l.dirs(node).kubeconfig()}); err != nil {
			return err
		}
	}
	return nil
}

// deregister removes a node's Node and its record, which a garbage collector would remove with it.
func (l *Lab) deregister(ctx context.Context, node Node) error {
	plane, err := l.Control()
	if err != nil {
		return err
	}
	if _, err := plane.Kubectl(ctx, "", "delete", "--ignore-not-found", "node/"+node.Name, "warrennode/"+node.Name); err != nil {
		return fmt.Errorf("remove its objects: %w", err)
	}
	return nil
}

// nodeObjects are the Nodes with what Warren and people look at: addresses, prefixes of pods, readiness.
func nodeObjects(nodes []Node) []byte {
	type object = map[string]any
	items := []object{}
	for _, n := range nodes {
		addresses := []object{{"type": "Hostname", "address": n.Name}}
		for _, address := range n.Addresses {
			addresses = append(addresses, object{"type": "InternalIP", "address": address.String()})
		}
		labels := object{"kubernetes.io/hostname": n.Name, "kubernetes.io/os": "linux"}
		if n.Name == controlNode {
			labels["node-role.kubernetes.io/control-plane"] = ""
		}
		items = append(items, object{
			"apiVersion": "v1", "kind": "Node", "metadata": object{"name": n.Name, "labels": labels},
			"spec": object{"podCIDR": n.Prefixes[0].String(), "podCIDRs": texts(n.Prefixes)},
			"status": object{"addresses": addresses, "conditions": []object{
				{"type": "Ready", "status": "True", "reason": "Lab", "message": "the lab has no kubelets"},
			}},
		})
	}
	return asJSON(object{"apiVersion": "v1", "kind": "List", "items": items})
}

func names(nodes []Node) []string {
	var names []string
	for _, node := range nodes {
		names = append(names, node.Name)
	}
	return names
}
