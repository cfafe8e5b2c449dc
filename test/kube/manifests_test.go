package kube

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"warren/internal/lab/control"
	"warren/internal/lab/control/controltest"
)

const namespace = "warren-system"

// TestManifests installs Warren as docs/kubernetes.md says, as far as the API server is concerned, and looks
// at what the agents may do then.
func TestManifests(t *testing.T) {
	plane := controltest.Own(t)
	manifests, err := filepath.Abs("../../deploy")
	if err != nil {
		t.Fatal(err)
	}
	for _, manifest := range []string{"warren.yaml", "tunnels.yaml", "cleanup.yaml"} {
		kubectl(t, plane, "apply", "--server-side", "--validate=strict", "--warnings-as-errors", "-f", filepath.Join(manifests, manifest))
	}
	kubectl(t, plane, "wait", "crd", "--all", "--for=condition=Established", "--timeout=30s")
	apply(t, plane, node("n1", "10.244.1.0/24", "10.99.0.11", "fd00:99::11"), node("n2", "10.244.2.0/24", "10.99.0.12", "fd00:99::12"))
	agent := agentOn(t, plane, "n1")
	t.Run("rights", func(t *testing.T) { testRights(t, plane, agent) })
	t.Run("own node only", func(t *testing.T) { testOwnNodeOnly(t, plane, agent) })
	t.Run("own addresses only", func(t *testing.T) { testOwnAddressesOnly(t, plane, agent) })
}

// apply creates or replaces objects as the administrator.
func apply(t *testing.T, plane *control.Plane, manifests ...string) {
	t.Helper()
	text := strings.Join(manifests, "\n---\n")
	if _, err := plane.Kubectl(t.Context(), text, "apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// node is a Node with addresses in its status, which the kubelet would report.
func node(name, podCIDR, internal, external string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Node, metadata: {name: %[1]s}, spec: {podCIDR: %[2]s, podCIDRs: [%[2]s]}, status: {addresses: [
		{type: InternalIP, address: %[3]q}, {type: ExternalIP, address: %[4]q}, {type: Hostname, address: %[1]s}]}}`, name, podCIDR, internal, external)
}

// agentOn returns the kubeconfig of the agent on a node: it has the token that the kubelet would give its pod.
func agentOn(t *testing.T, plane *control.Plane, node string) string {
	t.Helper()
	pod := "agent-on-" + node
	apply(t, plane, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s}, spec: {nodeName: %s, serviceAccountName: warren, containers: [{name: agent, image: none}]}}",
		pod, namespace, node))
	return withToken(t, plane, pod, "--bound-object-kind=Pod", "--bound-object-name="+pod)
}

// withToken returns a kubeconfig with a token of the agents' ServiceAccount.
func withToken(t *testing.T, plane *control.Plane, user string, bound ...string) string {
	t.Helper()
	token := kubectl(t, plane, append([]string{"--namespace=" + namespace, "create", "token", "warren"}, bound...)...)
	path, err := plane.Kubeconfig(control.Client{User: user, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	return path
}
