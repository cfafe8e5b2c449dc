package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"warren/deploy"
	"warren/internal/lab/control"
)

// The namespace and the ServiceAccount of the agents, as the manifest has them.
const (
	agentNamespace = "warren-system"
	agentAccount   = "warren"
)

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
