package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"warren/internal/api"
)

func newNodes() *cobra.Command {
	var q query
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "List the node records, also those that are refused, held back or remembered",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			nodes, err := q.client().Nodes(cmd.Context())
			if err != nil {
				return err
			}
			return q.output.print(cmd.OutOrStdout(), nodes, func(w io.Writer) { printNodes(w, nodes) })
		},
	}
	q.addFlags(cmd)
	cmd.AddCommand(newForget())
	return cmd
}

func newForget() *cobra.Command {
	var q query
	cmd := &cobra.Command{
		Use:   "forget",
		Short: "Let go of the nodes whose records vanished together",
		Long: `When many records vanish at once, their nodes stay peers for a while (hold.wait in the
configuration), since that looks like an accident. This says that those machines are really gone.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			gone, err := q.client().Forget(cmd.Context())
			if err != nil {
				return err
			}
			return q.output.print(cmd.OutOrStdout(), gone, func(w io.Writer) {
				fmt.Fprintln(w, listOr(gone, "no node is held back"))
			})
		},
	}
	q.addFlags(cmd)
	return cmd
}

func printNodes(w io.Writer, nodes []api.Node) {
	rows := [][]string{{"NODE", "CLUSTER", "STATE", "ADDRESSES", "PREFIXES", "KEY", "VERSION"}}
	for _, n := range nodes {
		rows = append(rows, []string{n.Name, n.Cluster, n.State, joined(n.Addresses), joined(n.Prefixes), newestKey(n.Keys), n.Version})
	}
	table(w, rows...)
	for _, n := range nodes {
		if n.Problem != "" {
			fmt.Fprintf(w, "\n%s: %s\n", n.Name, n.Problem)
		}
	}
}

func newestKey(keys []api.Key) string {
	var newest api.Key
	for _, key := range keys {
		if key.Epoch >= newest.Epoch {
			newest = key
		}
	}
	return newest.Public
}

func joined[T fmt.Stringer](values []T) string {
	var parts []string
	for _, value := range values {
		parts = append(parts, value.String())
	}
	return listOr(parts, "-")
}
