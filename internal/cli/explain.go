package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"warren/internal/api"
)

func newExplain() *cobra.Command {
	var q query
	var question api.Question
	cmd := &cobra.Command{
		Use:   "explain SRC DST",
		Short: "Say what the datapath of this node does with a packet, and why",
		Long: `Judge a packet from SRC to DST as this node's datapath does, twice: by the documented model, from what
the agent knows, and by running the loaded program over the maps in the kernel. Nothing is sent, and
nothing is counted. A packet for this node is judged as it comes in, any other as it leaves; one of TCP begins a connection.

The exit code is 1 when model and kernel do not agree: then the maps are not what they should be.`,
		Example: `  warren explain 10.42.1.7 10.42.2.9
  warren explain 192.0.2.1 192.0.2.2 --protocol tcp --port 6443 -o json`,
		Args: usage(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if question.Source, err = parseAddr(args[0]); err != nil {
				return err
			}
			if question.Destination, err = parseAddr(args[1]); err != nil {
				return err
			}
			answer, err := q.client().Explain(cmd.Context(), question)
			if err != nil {
				return err
			}
			return q.output.printVerdict(cmd.OutOrStdout(), answer.Agree, answer, func(w io.Writer) { printExplanation(w, answer) })
		},
	}
	q.addFlags(cmd)
	cmd.Flags().StringVar(&question.Protocol, "protocol", "tcp", "tcp, udp or icmp")
	cmd.Flags().Uint16Var(&question.Port, "port", 80, "destination port")
	_ = cmd.RegisterFlagCompletionFunc("protocol", cobra.FixedCompletions([]string{"tcp", "udp", "icmp"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func printExplanation(w io.Writer, e api.Explanation) {
	fmt.Fprintf(w, "%s -> %s, %s\n\n", e.Source, e.Destination, e.Protocol)
	rows := [][]string{{"", "PREFIX", "IDENTITY", "OWNER", "ENDPOINT", "KEY", "FLAGS", "LABELS"}}
	for _, side := range []struct {
		name  string
		entry *api.Entry
	}{{"from", e.SourceEntry}, {"to", e.DestEntry}} {
		if side.entry == nil {
			rows = append(rows, []string{side.name, "not in the cluster"})
			continue
		}
		rows = append(rows, append([]string{side.name}, entryRow(*side.entry)...))
	}
	table(w, rows...)
	for _, step := range e.Steps {
		fmt.Fprintf(w, "\n%s (%s)\n", step.Program, step.Hook)
		table(w,
			[]string{"  model", step.Model.Verdict, step.Model.Reason},
			[]string{"  kernel", step.Kernel.Verdict, step.Kernel.Reason})
		fmt.Fprintf(w, "  %s\n", step.Description)
	}
	for _, note := range e.Notes {
		fmt.Fprintf(w, "\nnote: %s\n", note)
	}
	if !e.Agree {
		fmt.Fprintln(w, "\nMODEL AND KERNEL DISAGREE: the maps are not what the agent wants; 'warren status' says what keeps it from writing them")
	}
}
