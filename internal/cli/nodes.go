package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"warren/internal/api"
)

func newNodes() *cobra.Command {
	var q query
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "List the node records that discovery brought, refused ones included",
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

func newIPCache() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ipcache",
		Short: "Show which node, identity and tunnel an address has",
	}
	cmd.AddCommand(newIPCacheList(), newIPCacheGet())
	return cmd
}

func newIPCacheList() *cobra.Command {
	var q query
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List every prefix with its identity, owner and tunnel endpoint",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			entries, err := q.client().Entries(cmd.Context())
			if err != nil {
				return err
			}
			return q.output.print(cmd.OutOrStdout(), entries, func(w io.Writer) { printEntries(w, entries) })
		},
	}
	q.addFlags(cmd)
	return cmd
}

func printEntries(w io.Writer, entries []api.Entry) {
	rows := [][]string{{"PREFIX", "IDENTITY", "OWNER", "ENDPOINT", "KEY", "FLAGS", "LABELS"}}
	for _, e := range entries {
		rows = append(rows, entryRow(e))
	}
	table(w, rows...)
}

func entryRow(e api.Entry) []string {
	key := "-"
	if e.HasPair {
		key = fmt.Sprint(e.Key)
	}
	endpoint := e.Endpoint
	if endpoint == "" {
		endpoint = "-"
	}
	return []string{e.Prefix.String(), fmt.Sprint(e.Identity), e.Owner, endpoint, key, listOr(e.Flags, "-"), listOr(e.Labels, "-")}
}

func newIPCacheGet() *cobra.Command {
	var q query
	cmd := &cobra.Command{
		Use:     "get ADDRESS",
		Short:   "Show the entry that covers an address, and every fact behind it",
		Long:    "Show the longest prefix that covers the address, the entry as used, the facts behind it, which\nfield came from which fact, and whether the kernel's map holds the same.",
		Example: "  warren ipcache get 10.42.1.7",
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			addr, err := parseAddr(args[0])
			if err != nil {
				return err
			}
			detail, err := q.client().Entry(cmd.Context(), addr)
			if err != nil {
				return err
			}
			return q.output.print(cmd.OutOrStdout(), detail, func(w io.Writer) { printDetail(w, detail) })
		},
	}
	q.addFlags(cmd)
	return cmd
}

func printDetail(w io.Writer, d api.EntryDetail) {
	printEntries(w, []api.Entry{d.Entry})
	fmt.Fprintln(w)
	rows := [][]string{{"FACT FROM", "RESOURCE", "PREFIX", "OWNER", "ENDPOINT", "KEY", "LABELS", "DECIDES"}}
	for _, f := range d.Facts {
		row := entryRow(api.Entry{Endpoint: f.Endpoint, Key: f.Key, HasPair: f.HasPair, Owner: f.Owner, Labels: f.Labels})
		rows = append(rows, []string{f.Source.String(), f.Resource, f.Prefix.String(), row[2], row[3], row[4], row[6], decides(d.Fields, f)})
	}
	table(w, rows...)
	if d.Agree {
		fmt.Fprintln(w, "\nkernel: holds the same")
		return
	}
	fmt.Fprintln(w, "\nkernel: DIFFERS")
	if d.Kernel == nil {
		fmt.Fprintln(w, "  nothing in the map; the agent retries, 'warren status' says why")
		return
	}
	printEntries(w, []api.Entry{*d.Kernel})
}

// decides names the fields of the entry that came from the fact.
func decides(fields []api.FieldFrom, fact api.Fact) string {
	var names []string
	for _, field := range fields {
		if field.Source == fact.Source && field.Resource == fact.Resource {
			names = append(names, field.Field)
		}
	}
	return strings.Join(names, " ")
}
