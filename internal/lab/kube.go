package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

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
			problems = append(problems, fmt.Errorf("path %q, for Kubernetes: not absolute", path))
		}
	}
	if !slices.Contains(nodes, 1) {
		problems = append(problems, fmt.Errorf("no node %s, which Kubernetes' control plane is on", controlNode))
	}
	return problems
}

// controlNode is the node with the control plane.
const controlNode = "n1"

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
