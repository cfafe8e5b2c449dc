package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"warren/internal/api"
	"warren/internal/cluster"
)

func newIPCache() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ipcache",
		Short: "Show which node, identity and tunnel an address has",
	}
	cmd.AddCommand(newIPCacheList(), newIPCacheGet(), newIPCacheWatch(), newIPCacheConflicts())
	return cmd
}

func newIPCacheList() *cobra.Command {
	var q query
	var filter filterFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List prefixes with their identity, owner and tunnel endpoint",
		Example: `  warren ipcache list --node n2
  warren ipcache list --source kube-apiserver -o json`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			wanted, err := filter.filter(cmd)
			if err != nil {
				return exitError{exitUsage, err}
			}
			entries, err := q.client().Entries(cmd.Context(), wanted)
			if err != nil {
				return err
			}
			return q.output.print(cmd.OutOrStdout(), entries, func(w io.Writer) { printEntries(w, entries) })
		},
	}
	q.addFlags(cmd)
	filter.addFlags(cmd)
	return cmd
}

// filterFlags select entries.
type filterFlags struct {
	node, source string
	identity     uint32
	conflict     bool
}

func (f *filterFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.node, "node", "", "only what belongs to this node (name, or cluster/name)")
	cmd.Flags().StringVar(&f.source, "source", "", "only prefixes that this source says something about")
	cmd.Flags().Uint32Var(&f.identity, "identity", 0, "only this identity number")
	cmd.Flags().BoolVar(&f.conflict, "conflict", false, "only prefixes about which facts disagree")
	var sources []string
	for s := cluster.SourceKubeAPIServer; s <= cluster.SourceRestored; s++ {
		sources = append(sources, s.String())
	}
	_ = cmd.RegisterFlagCompletionFunc("source", cobra.FixedCompletions(sources, cobra.ShellCompDirectiveNoFileComp))
}

func (f *filterFlags) filter(cmd *cobra.Command) (api.Filter, error) {
	filter := api.Filter{Node: f.node, Conflict: f.conflict}
	if cmd.Flags().Changed("identity") {
		filter.Identity = &f.identity
	}
	if f.source == "" {
		return filter, nil
	}
	var err error
	filter.Source, err = cluster.ParseSource(f.source)
	return filter, err
}

func newIPCacheConflicts() *cobra.Command {
	var q query
	cmd := &cobra.Command{
		Use:   "conflicts",
		Short: "List prefixes about which facts disagree, and whose word counts",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			conflicts, err := q.client().Conflicts(cmd.Context())
			if err != nil {
				return err
			}
			return q.output.print(cmd.OutOrStdout(), conflicts, func(w io.Writer) { printConflicts(w, conflicts) })
		},
	}
	q.addFlags(cmd)
	return cmd
}

func printConflicts(w io.Writer, conflicts []api.Conflict) {
	rows := [][]string{{"PREFIX", "FIELD", "COUNTS", "SOURCE", "OVERRULED", "SOURCE"}}
	for _, c := range conflicts {
		for _, loser := range c.Losers {
			rows = append(rows, []string{c.Prefix.String(), c.Field, c.Winner.Resource, c.Winner.Source.String(), loser.Resource, loser.Source.String()})
		}
	}
	table(w, rows...)
}

func newIPCacheWatch() *cobra.Command {
	var q query
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Print the entries, and then every change as it happens",
		Long: `Print the entries that there are, and then every change as it happens, until interrupted: '+' for a new
prefix, '-' for one that is gone, '~' for a change, with the old entry and the new one.
With -o json each line is one object with time, prefix, old and new.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			encoder := json.NewEncoder(cmd.OutOrStdout())
			err := q.client().Watch(cmd.Context(), func(delta api.Delta) error {
				if q.output == "json" {
					return encoder.Encode(delta)
				}
				return printDelta(cmd.OutOrStdout(), delta)
			})
			switch {
			case cmd.Context().Err() != nil:
				return nil // interrupted: that is how a watch ends
			case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
				return errors.New("the agent ended the watch: it has ended itself, or this reader was too slow; watch again")
			}
			return err
		},
	}
	q.addFlags(cmd)
	return cmd
}

func printDelta(w io.Writer, d api.Delta) error {
	sign, text := "~", ""
	switch {
	case d.Old == nil:
		sign, text = "+", entryText(*d.New)
	case d.New == nil:
		sign, text = "-", entryText(*d.Old)
	default:
		text = entryText(*d.Old) + "  ->  " + entryText(*d.New)
	}
	_, err := fmt.Fprintf(w, "%s %s %s  %s\n", d.Time.Format("15:04:05.000"), sign, d.Prefix, text)
	return err
}

// entryText is an entry on one line, without its prefix.
func entryText(e api.Entry) string {
	row := entryRow(e)
	return fmt.Sprintf("identity %s owner %s endpoint %s key %s labels %s", row[1], row[2], row[3], row[4], row[6])
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
	switch {
	case d.Agree && d.Kernel == nil:
		fmt.Fprintln(w, "\nkernel: holds nothing, as of all that is not in the cluster")
		return
	case d.Agree:
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
