package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"warren/internal/lab"
)

func newLab() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Build a cluster of network namespaces on this machine and prove what its wire carries",
		Long: `A laboratory: a switch as the wire, nodes, pods behind them, and one real agent per node, all in
network namespaces of this machine. Nothing outside those namespaces is changed, and 'lab down' leaves
nothing behind. Needs root and iproute2.

Labs of different names live side by side; every command takes --name.`,
		Example: `  warren lab up --nodes 3 --pods 2
  warren lab verify
  warren lab exec n1/p1 -- ping -c 1 10.42.2.11
  warren lab down`,
	}
	cmd.AddCommand(newLabUp(), newLabStatus(), newLabExec(), newLabVerify(), newLabAgent(), newLabJoin(), newLabLeave(), newLabDown())
	return cmd
}

// labFlags are what the commands of a lab share.
type labFlags struct {
	name string
	wait time.Duration
}

func (f *labFlags) addName(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.name, "name", lab.DefaultName, "name of the lab")
	_ = cmd.RegisterFlagCompletionFunc("name", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		names, _ := lab.Names()
		return names, cobra.ShellCompDirectiveNoFileComp
	})
}

func (f *labFlags) addWait(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.wait, "wait", time.Minute, "how long agents may take until they have all their peers")
}

// options makes long work report its steps to standard error.
func (f *labFlags) options(cmd *cobra.Command) lab.Options {
	return lab.Options{Ready: f.wait, Progress: func(step string) { fmt.Fprintln(cmd.ErrOrStderr(), step) }}
}

func (f *labFlags) open(cmd *cobra.Command) (*lab.Lab, error) {
	return lab.Open(f.name, f.options(cmd))
}

func newLabUp() *cobra.Command {
	var flags labFlags
	var nodes int
	var plain bool
	var agent lab.AgentOptions
	spec := lab.Spec{CNI: lab.CNIRoutes}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Build a lab and wait until every agent has all its peers",
		Long: `Build a lab: namespace warren-wire with the switch, warren-n1… for the nodes, warren-n1-p1… for their
pods (with --name X: warren-X-wire, warren-X-n1, warren-X-n1-p1). When the network cannot be built,
what was built is removed again; when an agent does not get ready, the lab stays, to be looked at.`,
		Example: `  warren lab up
  warren lab up --name overlay --cni vxlan --attach clsact
  warren lab up --name clear --no-encryption`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec.Name, spec.Nodes = flags.name, lab.NodeNumbers(max(0, nodes))
			if !plain {
				spec.Agent = &agent
				if err := resolveBinary(&agent.Binary); err != nil {
					return err
				}
			}
			if err := spec.Validate(); err != nil {
				return exitError{exitUsage, err}
			}
			l, err := lab.Up(cmd.Context(), spec, flags.options(cmd))
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "lab %s is up: %s\n", l.Spec.Name, describe(l.Spec))
			return nil
		},
	}
	flags.addName(cmd)
	flags.addWait(cmd)
	cmd.Flags().IntVar(&nodes, "nodes", 3, "number of nodes")
	cmd.Flags().IntVar(&spec.Pods, "pods", 2, "number of pods per node")
	cmd.Flags().StringVar((*string)(&spec.CNI), "cni", string(lab.CNIRoutes), "how pods of different nodes reach each other: routes or vxlan")
	cmd.Flags().IntVar(&spec.MTU, "mtu", 1500, "MTU of the wire in bytes")
	cmd.Flags().BoolVar(&plain, "no-encryption", false, "build the same without agents")
	cmd.Flags().StringVar(&agent.Attach, "attach", "", "how agents attach their programs: auto, tcx or clsact")
	cmd.Flags().StringVar(&agent.Ingress, "ingress", "", "where decrypted packets appear: underlay or device")
	cmd.Flags().StringVar(&agent.Mode, "mode", "", "mode of the agents")
	cmd.Flags().StringVar(&agent.LogLevel, "log-level", "", "log level of the agents")
	cmd.Flags().StringVar(&agent.Binary, "binary", "", "warren binary that the agents run (default: this one)")
	for name, values := range map[string][]string{"cni": {"routes", "vxlan"}, "attach": {"auto", "tcx", "clsact"}, "ingress": {"underlay", "device"}} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

// resolveBinary makes the path absolute; the empty one becomes this program's.
func resolveBinary(path *string) (err error) {
	if *path == "" {
		*path, err = os.Executable()
		return err
	}
	if *path, err = filepath.Abs(*path); err != nil {
		return err
	}
	_, err = os.Stat(*path)
	return err
}

func describe(spec lab.Spec) string {
	encryption := "encrypted"
	if spec.Agent == nil {
		encryption = "without encryption"
	}
	return fmt.Sprintf("%d nodes with %d pods each, CNI %s, MTU %d, %s", len(spec.Nodes), spec.Pods, spec.CNI, spec.MTU, encryption)
}

func newLabDown() *cobra.Command {
	var flags labFlags
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Remove a lab: every process, namespace, mount and file of it",
		Long: `Remove a lab and whatever an interrupted 'up' left of it. Every process in its namespaces is ended,
those that 'lab exec' started included. That there is no such lab is not an error.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return lab.Down(cmd.Context(), flags.name) },
	}
	flags.addName(cmd)
	return cmd
}

func newLabExec() *cobra.Command {
	var flags labFlags
	cmd := &cobra.Command{
		Use:   "exec PLACE -- COMMAND [ARGUMENT]...",
		Short: "Run a command on a node, in a pod or at the switch",
		Long: `Run a command where PLACE says: a node ("n1"), a pod ("n1/p1") or the switch ("wire"). Standard
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
	for _, node := range l.Topology.Nodes {
		places = append(places, node.Name)
		for _, pod := range node.Pods {
			places = append(places, node.Name+"/"+pod.Name)
		}
	}
	return places, cobra.ShellCompDirectiveNoFileComp
}

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
			if err := form.print(cmd.OutOrStdout(), status, func(w io.Writer) { printLab(w, l.Spec, status) }); err != nil {
				return err
			}
			if !status.Ready() {
				return exitError{Code: exitFailure}
			}
			return nil
		},
	}
	flags.addName(cmd)
	form.addFlag(cmd)
	return cmd
}

func printLab(w io.Writer, spec lab.Spec, status lab.Status) {
	fmt.Fprintf(w, "lab %s: %s; wire in %s\n\n", status.Name, describe(spec), status.Wire)
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
