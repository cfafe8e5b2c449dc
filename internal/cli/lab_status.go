package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"warren/internal/lab"
)

func newLabStatus() *cobra.Command {
	var flags labFlags
	var form output
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show nodes, pods and agents of a lab",
		Long:  "Show nodes, pods and agents. The exit code is 0 when every agent is ready and 1 when one is not.",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := flags.open(cmd)
			if err != nil {
				return err
			}
			status := l.Status(cmd.Context())
			return form.printVerdict(cmd.OutOrStdout(), status.Ready(), status, func(w io.Writer) { printLab(w, l.Spec, status) })
		},
	}
	flags.addName(cmd)
	form.addFlag(cmd)
	return cmd
}

func printLab(w io.Writer, spec lab.Spec, status lab.Status) {
	fmt.Fprintf(w, "lab %s: %s; wire in %s\n", status.Name, describe(spec), status.Wire)
	if router := status.Router; router != nil {
		fmt.Fprintf(w, "%s is behind a router, which is in %s\n", router.Node, router.Namespace)
	}
	if c := status.Control; c != nil {
		fmt.Fprintf(w, "API server %s on %s, %s; kubeconfig %s\n", c.Server, c.Node, serving(c), c.Kubeconfig)
	}
	fmt.Fprintln(w)
	nodes := [][]string{{"NODE", "NAMESPACE", "ADDRESSES", "PREFIXES", "PID", "READY", "PEERS"}}
	pods := [][]string{{"POD", "NAMESPACE", "ADDRESSES"}}
	for _, node := range status.Nodes {
		nodes = append(nodes, append([]string{node.Name, node.Namespace, strings.Join(node.Addresses, " "), strings.Join(node.Prefixes, " ")}, agentColumns(node.Agent)...))
		for _, pod := range node.Pods {
			pods = append(pods, []string{node.Name + "/" + pod.Name, pod.Namespace, strings.Join(pod.Addresses, " ")})
		}
	}
	table(w, nodes...)
	fmt.Fprintln(w)
	table(w, pods...)
	for _, node := range status.Nodes {
		if node.Agent != nil && !node.Agent.Ready {
			fmt.Fprintf(w, "\n%s is not ready: %s\n  log: %s\n", node.Name, strings.Join(node.Agent.Detail, "; "), node.Agent.Log)
		}
	}
}

func serving(c *lab.ControlStatus) string {
	if c.Ready {
		return "ready"
	}
	return "not ready: " + strings.Join(c.Detail, "; ")
}

func agentColumns(agent *lab.AgentStatus) []string {
	switch {
	case agent == nil:
		return []string{"-", "-", "-"}
	case agent.PID == 0:
		return []string{"-", "no", "-"}
	case agent.Ready:
		return []string{fmt.Sprint(agent.PID), "yes", fmt.Sprint(agent.Peers)}
	}
	return []string{fmt.Sprint(agent.PID), "no", fmt.Sprint(agent.Peers)}
}
