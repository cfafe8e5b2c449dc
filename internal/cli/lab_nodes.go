package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"warren/internal/lab"
)

func newLabJoin() *cobra.Command {
	var flags labFlags
	cmd := &cobra.Command{
		Use:   "join",
		Short: "Add a node with pods to a running lab",
		Long:  "Add a node with pods. It gets the smallest number that is free, so it takes the place and the\naddresses of a node that left. Prints its name.",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, err := lab.Join(cmd.Context(), flags.name, flags.options(cmd))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), name)
			return err
		},
	}
	flags.addName(cmd)
	flags.addWait(cmd)
	return cmd
}

func newLabLeave() *cobra.Command {
	var flags labFlags
	cmd := &cobra.Command{
		Use:     "leave NODE",
		Short:   "Take a node away from a running lab",
		Long:    "Take a node away: its agent and all else that runs there ends, its record goes, then its namespaces.",
		Example: "  warren lab leave n2",
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return lab.Leave(cmd.Context(), flags.name, args[0], flags.options(cmd))
		},
	}
	flags.addName(cmd)
	return cmd
}

func newLabReboot() *cobra.Command {
	var flags labFlags
	loseDisk := false
	cmd := &cobra.Command{
		Use:   "reboot NODE",
		Short: "Reboot a node of a running lab",
		Long: `End everything on a node at once, build the machine anew, and start its agent. The state directory
is kept, as a disk is, or lost with --lose-disk; the record in the folder stays.`,
		Example: "  warren lab reboot n2 --lose-disk",
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return lab.Reboot(cmd.Context(), flags.name, args[0], loseDisk, flags.options(cmd))
		},
	}
	flags.addName(cmd)
	cmd.Flags().BoolVar(&loseDisk, "lose-disk", false, "lose the state directory, with the private key")
	return cmd
}

func newLabAgent() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Start, stop, restart or kill the agents of a lab",
	}
	cmd.AddCommand(
		newLabAgentVerb("start", "Start the agents of nodes and wait until they are ready",
			func(ctx context.Context, l *lab.Lab, wait time.Duration, nodes []string) error {
				return l.StartAgents(ctx, wait, nodes...)
			}),
		newLabAgentVerb("stop", "Stop the agents of nodes with SIGTERM; the datapath stays",
			func(ctx context.Context, l *lab.Lab, _ time.Duration, nodes []string) error {
				return eachNode(nodes, func(node string) error { return l.StopAgent(ctx, node) })
			}),
		newLabAgentVerb("kill", "Kill the agents of nodes with SIGKILL, as a crash does",
			func(ctx context.Context, l *lab.Lab, _ time.Duration, nodes []string) error {
				return eachNode(nodes, func(node string) error { return l.KillAgent(ctx, node) })
			}),
		newLabAgentVerb("restart", "Stop and start the agents of nodes, one after the other",
			func(ctx context.Context, l *lab.Lab, wait time.Duration, nodes []string) error {
				return eachNode(nodes, func(node string) error {
					if err := l.StopAgent(ctx, node); err != nil {
						return err
					}
					return l.StartAgents(ctx, wait, node)
				})
			}),
	)
	return cmd
}

func eachNode(nodes []string, do func(node string) error) error {
	for _, node := range nodes {
		if err := do(node); err != nil {
			return err
		}
	}
	return nil
}

// agentVerb does something to the agents of nodes.
type agentVerb func(ctx context.Context, l *lab.Lab, wait time.Duration, nodes []string) error

func newLabAgentVerb(use, short string, run agentVerb) *cobra.Command {
	var flags labFlags
	cmd := &cobra.Command{
		Use:   use + " NODE...",
		Short: short,
		Args:  usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := flags.open(cmd)
			if err != nil {
				return err
			}
			return run(cmd.Context(), l, flags.wait, args)
		},
	}
	flags.addName(cmd)
	flags.addWait(cmd)
	return cmd
}
