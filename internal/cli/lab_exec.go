package cli

import (
	"os/exec"

	"github.com/spf13/cobra"

	"warren/internal/lab"
)

func newLabExec() *cobra.Command {
	var flags labFlags
	cmd := &cobra.Command{
		Use:   "exec PLACE -- COMMAND [ARGUMENT]...",
		Short: "Run a command on a node, in a pod or at the switch",
		Long: `Run a command where PLACE says: a node ("n1"), a pod ("n1/p1"), the switch ("wire") or, in a lab with
--path-mtu, the router ("router"). Standard
streams, signals and the exit code are the command's own. On a node, 'wg' and Warren's commands find
the node's own agent, and /sys/fs/bpf is the node's.`,
		Example: `  warren lab exec n1 -- warren status
  warren lab exec n1 -- wg show
  warren lab exec n1/p1 -- ping -c 1 10.42.2.11
  warren lab exec wire -- tcpdump -n -i wire`,
		Args: usage(cobra.MinimumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := flags.open(cmd)
			if err != nil {
				return err
			}
			place, err := l.Place(args[0])
			if err != nil {
				return exitError{exitUsage, err}
			}
			path, err := exec.LookPath(args[1])
			if err != nil {
				return err
			}
			return place.Exec(path, args[1:], place.Env)
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return completePlace(&flags, cmd, args)
		},
	}
	flags.addName(cmd)
	return cmd
}

func completePlace(flags *labFlags, cmd *cobra.Command, args []string) ([]string, cobra.ShellCompDirective) {
	l, err := flags.open(cmd)
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	places := []string{lab.WireBridge}
	if l.Topology.Router != nil {
		places = append(places, lab.RouterName)
	}
	for _, node := range l.Topology.Nodes {
		places = append(places, node.Name)
		for _, pod := range node.Pods {
			places = append(places, node.Name+"/"+pod.Name)
		}
	}
	return places, cobra.ShellCompDirectiveNoFileComp
}
