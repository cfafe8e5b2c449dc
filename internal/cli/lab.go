package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"warren/internal/config"
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
	cmd.AddCommand(newLabUp(), newLabStatus(), newLabExec(), newLabVerify(), newLabSweep(), newLabAgent(), newLabJoin(), newLabLeave(), newLabReboot(), newLabDown(), newLabForward())
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
	var up labUp
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Build a lab and wait until every agent has all its peers",
		Long: `Build a lab: namespace warren-wire with the switch, warren-n1… for the nodes, warren-n1-p1… for their
pods (with --name X: warren-X-wire, warren-X-n1, warren-X-n1-p1). When the network cannot be built,
what was built is removed again; when an agent does not get ready, the lab stays, to be looked at.

With --kube the lab has a Kubernetes: a real etcd and kube-apiserver on n1, which the other nodes reach over
the wire, a Node for each node, agents that find each other by WarrenNode resources, and pods attached by
CNI plugins. It needs the binaries of scripts/kubetools.sh. kubectl works with the kubeconfig that is printed.

With --path-mtu one node is behind a router (namespace warren-router) that forwards smaller packets than
the devices of the nodes send. It has another subnet then: n3 is 10.10.3.3.`,
		Example: `  warren lab up
  warren lab up --name overlay --cni vxlan --attach clsact
  warren lab up --name clear --no-encryption
  warren lab up --kube --mode strict && export KUBECONFIG=/run/warren-lab/default/kubeconfig
  warren lab up --name narrow --path-mtu n3=1400 --path-icmp block`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec, err := up.wanted()
			if err != nil {
				return err
			}
			l, err := lab.Up(cmd.Context(), spec, up.options(cmd))
			if err != nil {
				return err
			}
			return printUp(cmd.OutOrStdout(), l)
		},
	}
	up.addFlags(cmd)
	return cmd
}

func printUp(w io.Writer, l *lab.Lab) error {
	_, err := fmt.Fprintf(w, "lab %s is up: %s\n", l.Spec.Name, describe(l.Spec))
	if err != nil || l.Spec.Kube == nil {
		return err
	}
	_, err = fmt.Fprintf(w, "to administrate it: export KUBECONFIG=%s (there is a kubectl in %s)\n", l.Kubeconfig(), l.Spec.Kube.Binaries)
	return err
}

// labUp is what `lab up` is told.
type labUp struct {
	labFlags
	nodes int
	plain bool
	kube  kubeFlags
	path  pathFlags
	spec  lab.Spec
	agent lab.AgentOptions
}

func (u *labUp) addFlags(cmd *cobra.Command) {
	u.addName(cmd)
	u.addWait(cmd)
	u.path.addFlags(cmd)
	u.kube.addFlags(cmd)
	flags := cmd.Flags()
	flags.IntVar(&u.nodes, "nodes", 3, "number of nodes")
	flags.IntVar(&u.spec.Pods, "pods", 2, "number of pods per node")
	flags.StringVar((*string)(&u.spec.CNI), "cni", string(lab.CNIRoutes), "how pods of different nodes reach each other: routes or vxlan")
	flags.IntVar(&u.spec.MTU, "mtu", 1500, "MTU of the wire in bytes")
	flags.BoolVar(&u.plain, "no-encryption", false, "build the same without agents")
	flags.StringVar(&u.agent.Attach, "attach", "", "how agents attach their programs: auto, tcx or clsact")
	flags.StringVar(&u.agent.Ingress, "ingress", "", "where decrypted packets appear: underlay or device")
	flags.StringVar(&u.agent.Mode, "mode", "", "mode of the agents: observe, permissive or strict")
	flags.StringVar(&u.agent.LogLevel, "log-level", "", "log level of the agents: debug, info, warn or error")
	flags.StringVar(&u.agent.Binary, "binary", "", "warren binary that the agents run (default: this one)")
	for name, values := range map[string][]string{
		"cni": {"routes", "vxlan"}, "attach": {"auto", "tcx", "clsact"}, "ingress": {"underlay", "device"},
		"mode": {"observe", "permissive", "strict"}, "log-level": {"debug", "info", "warn", "error"},
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

// wanted puts the flags together. The values for agents are judged by the agents' own configuration.
func (u *labUp) wanted() (spec lab.Spec, err error) {
	spec = u.spec
	spec.Name, spec.Nodes = u.name, lab.NodeNumbers(max(0, u.nodes))
	if spec.Path, err = u.path.path(spec.Nodes); err != nil {
		return spec, exitError{exitUsage, err}
	}
	if spec.Kube, err = u.kube.options(); err != nil {
		return spec, err
	}
	if !u.plain {
		spec.Agent = &u.agent
		if err := resolveBinary(&u.agent.Binary); err != nil {
			return spec, fmt.Errorf("find the binary for the agents: %w", err)
		}
		if err := checkAgentOptions(u.agent); err != nil {
			return spec, exitError{exitUsage, err}
		}
	}
	if err := spec.Validate(); err != nil {
		return spec, exitError{exitUsage, err}
	}
	return spec, nil
}

// checkAgentOptions lets a misspelt value fail here rather than in every agent's log.
func checkAgentOptions(options lab.AgentOptions) error {
	c := config.Default()
	var problems []error
	for _, option := range []struct{ key, value string }{
		{"attach", options.Attach}, {"ingress", options.Ingress}, {"mode", options.Mode}, {"log-level", options.LogLevel},
	} {
		if option.value != "" {
			problems = append(problems, c.Set(option.key, option.value))
		}
	}
	return errors.Join(problems...)
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
	kubernetes := ""
	if spec.Kube != nil {
		kubernetes = "Kubernetes, "
	}
	return fmt.Sprintf("%d nodes with %d pods each, CNI %s, MTU %d%s, %s%s",
		len(spec.Nodes), spec.Pods, spec.CNI, spec.MTU, describePath(spec.Path), kubernetes, encryption)
}

func describePath(path *lab.Path) string {
	if path == nil {
		return ""
	}
	errors := "with"
	if path.Silent {
		errors = "without"
	}
	return fmt.Sprintf(" (%d to n%d, %s ICMP errors)", path.MTU, path.Node, errors)
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
