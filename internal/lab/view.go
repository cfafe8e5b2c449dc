package lab

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"warren/internal/lab/netns"
)

// Place is somewhere in a lab where a process can run: a node, a pod or the wire.
type Place struct {
	netns.View
	// Env is the environment for processes there: the caller's, and on a node where its agent is.
	Env []string
}

// Place returns a place by its name: "n1", "n1/p2", "wire" or "router".
func (l *Lab) Place(target string) (Place, error) {
	if target == WireBridge {
		return Place{View: netns.View{Namespace: l.Topology.Wire}, Env: os.Environ()}, nil
	}
	if router := l.Topology.Router; target == RouterName && router != nil {
		return Place{View: netns.View{Namespace: router.Namespace}, Env: os.Environ()}, nil
	}
	name, podName, isPod := strings.Cut(target, "/")
	node, ok := l.Topology.Node(name)
	if !ok {
		return Place{}, l.unknown(target)
	}
	if !isPod {
		return Place{View: l.nodeView(node), Env: l.withKubeconfig(l.environment(node))}, nil
	}
	pod, ok := node.Pod(podName)
	if !ok {
		return Place{}, l.unknown(target)
	}
	return Place{View: netns.View{Namespace: pod.Namespace}, Env: os.Environ()}, nil
}

// withKubeconfig makes kubectl on a node administrate the cluster, if there is one.
func (l *Lab) withKubeconfig(env []string) []string {
	plane, err := l.Control()
	if err != nil {
		return env
	}
	return with(env, "KUBECONFIG="+plane.Admin())
}

// with sets a variable in an environment. It replaces the caller's, since the first of two would count.
func with(env []string, variable string) []string {
	name, _, _ := strings.Cut(variable, "=")
	return append(slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, name+"=") }), variable)
}

func (l *Lab) unknown(target string) error {
	var names []string
	for _, node := range l.Topology.Nodes {
		names = append(names, node.Name)
	}
	pods := "no pods"
	if l.Spec.Pods > 0 {
		pods = fmt.Sprintf("pods %[1]s/p1 to %[1]s/p%d on each", names[0], l.Spec.Pods)
	}
	rest := fmt.Sprintf("the wire is %q", WireBridge)
	if l.Topology.Router != nil {
		rest += fmt.Sprintf(", the router %q", RouterName)
	}
	return fmt.Errorf("%q is not in lab %s: nodes %s, %s, and %s", target, l.Spec.Name, strings.Join(names, " "), pods, rest)
}

// nodeView is what the agent and everything else on a node sees: its own WireGuard sockets, and its
// own BPF file system in the usual place.
func (l *Lab) nodeView(node Node) netns.View {
	dirs := l.dirs(node)
	return netns.View{Namespace: node.Namespace, Binds: []netns.Bind{
		{Source: dirs.wireguard(), Target: WireGuardDir},
		{Source: dirs.bpf(), Target: "/sys/fs/bpf"},
	}}
}

// environment tells Warren's own commands where the node's agent is.
func (l *Lab) environment(node Node) []string {
	dirs := l.dirs(node)
	return with(with(os.Environ(), "WARREN_RUN_DIR="+dirs.run()), "WARREN_CONFIG="+dirs.config())
}
