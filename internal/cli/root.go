// Package cli is the command line: flags become configuration, and what the agent knows becomes text or
// JSON. It decides nothing; every command is a thin layer over agent, api, lab or wireguard.
//
// Exit codes: 0 for success, 1 when the command did its work and the answer is "no" or an error, 2 for a
// command line that cannot be understood, 3 when no agent is running.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"warren/internal/api"
)

// Exit codes, stable for scripts.
const (
	exitOK         = 0
	exitFailure    = 1
	exitUsage      = 2
	exitNotRunning = 3
)

// Streams are where a command reads and writes.
type Streams struct {
	In  io.Reader
	Out io.Writer // results
	Err io.Writer // progress, logs and errors
}

// System returns the process's own streams.
func System() Streams { return Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr} }

// exitError ends the process with a code and, where Err is set, a message.
type exitError struct {
	Code int
	Err  error
}

func (e exitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit %d", e.Code)
	}
	return e.Err.Error()
}

func (e exitError) Unwrap() error { return e.Err }

// Main runs the command line and returns the exit code of the process.
func Main(args []string, streams Streams) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	return report(root.ExecuteContext(ctx), streams.Err)
}

func report(err error, stderr io.Writer) int {
	if err == nil {
		return exitOK
	}
	var exit exitError
	isExit := errors.As(err, &exit)
	if !isExit || exit.Err != nil {
		fmt.Fprintf(stderr, "warren: %v\n", err)
	}
	switch {
	case isExit:
		return exit.Code
	case errors.Is(err, api.ErrNotRunning):
		return exitNotRunning
	}
	return exitFailure
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "warren",
		Short: "Encrypt every packet between the machines of a cluster with WireGuard",
		Long: `Warren encrypts every packet between the machines of a cluster, node to node, pod to pod and
pod to node, with WireGuard, under any CNI, with or without Kubernetes.

An eBPF program on the egress of the underlay device redirects clear packets for other nodes into
the WireGuard device; what WireGuard sends is marked and passes. No route, rule or sysctl is touched.`,
		Example: `  warren agent --config /etc/warren/warren.yaml   run the node's agent
  warren status                                   what this node encrypts, and with whom
  warren lab up && warren lab verify              a cluster on this machine, proved on its wire`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return exitError{exitUsage, fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())}
	})
	root.AddCommand(newAgent(), newStatus(), newMode(), newNodes(), newIPCache(), newExplain(), newKeys(), newLeave(), newCleanup(), newTunnel(), newLauncher(), newPause(), newLab(), newVersion())
	requireSubcommand(root)
	return root
}

// requireSubcommand makes a misspelt subcommand an error instead of a page of help and exit code 0.
func requireSubcommand(cmd *cobra.Command) {
	for _, child := range cmd.Commands() {
		requireSubcommand(child)
	}
	if !cmd.HasSubCommands() || cmd.Runnable() {
		return
	}
	cmd.SuggestionsMinimumDistance = 2
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		remedy := fmt.Sprintf("see '%s --help'", cmd.CommandPath())
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			remedy = fmt.Sprintf("did you mean '%s %s'?", cmd.CommandPath(), near[0])
		}
		return exitError{exitUsage, fmt.Errorf("unknown command %q for %q; %s", args[0], cmd.CommandPath(), remedy)}
	}
}

// usage wraps a check of positional arguments so that it ends with the exit code of a usage error.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return exitError{exitUsage, fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())}
		}
		return nil
	}
}

// query is what the commands that ask the agent share: where it listens, and the form of the answer.
type query struct {
	runDir string
	output output
}

func (q *query) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&q.runDir, "run-dir", defaultRunDir(), "run directory of the agent, which has its socket")
	q.output.addFlag(cmd)
}

func (q *query) client() *api.Client { return api.Dial(filepath.Join(q.runDir, api.SocketName)) }

func defaultRunDir() string { return fromEnv("WARREN_RUN_DIR", "/run/warren") }

func fromEnv(name, fallback string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return fallback
}
