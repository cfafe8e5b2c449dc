package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"warren/internal/lab/proof"
)

func newLabVerify() *cobra.Command {
	var flags labFlags
	var form output
	var all bool
	var options proof.Options
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Prove on the wire of a lab that nothing crosses it in clear",
		Long: `Send traffic with a random marker in its payload for every ordered pair of nodes × class × family ×
protocol, capture at the switch, and report for each row whether the answer came back, how many frames
carried the marker where it could be read, how many went between nodes in clear, and how many were
WireGuard's. First the same is done in a lab of the same shape without encryption, which is made and
removed for this: there the check must see the clear text, otherwise it is void.

The exit code is 0 when every row was delivered and nothing could be read, and 1 otherwise.`,
		Example: `  warren lab verify
  warren lab verify --class pod-pod --protocol tcp --size 4000
  warren lab verify -o json | jq '.rows[] | select(.ok | not)'`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkVerify(options); err != nil {
				return exitError{exitUsage, err}
			}
			l, err := flags.open(cmd)
			if err != nil {
				return err
			}
			options.Progress = func(step string) { fmt.Fprintln(cmd.ErrOrStderr(), step) }
			report, err := proof.Verify(cmd.Context(), l, options)
			if err != nil {
				return err
			}
			return form.printVerdict(cmd.OutOrStdout(), report.OK, report, func(w io.Writer) { printReport(w, report, all) })
		},
	}
	flags.addName(cmd)
	form.addFlag(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "print every row, not only groups and what is wrong")
	addFilter(cmd, &options.Filter)
	cmd.Flags().IntVar(&options.Size, "size", proof.DefaultSize, "bytes of payload of each packet")
	cmd.Flags().DurationVar(&options.Timeout, "timeout", 5*time.Second, "how long the answer of a row may take")
	return cmd
}

func checkVerify(options proof.Options) error {
	if err := checkFilter(options.Filter); err != nil {
		return err
	}
	if options.Size < proof.MinSize || options.Size > proof.MaxSize {
		return fmt.Errorf("--size %d: %d to %d", options.Size, proof.MinSize, proof.MaxSize)
	}
	return nil
}

// addFilter adds the flags that select rows.
func addFilter(cmd *cobra.Command, filter *proof.Filter) {
	for _, flag := range []struct {
		name   string
		target *[]string
		values []string
	}{
		{"class", &filter.Classes, proof.Classes}, {"family", &filter.Families, proof.Families},
		{"protocol", &filter.Protocols, proof.Protocols},
	} {
		cmd.Flags().StringSliceVar(flag.target, flag.name, nil, "only rows of these: "+strings.Join(flag.values, ", "))
		_ = cmd.RegisterFlagCompletionFunc(flag.name, cobra.FixedCompletions(flag.values, cobra.ShellCompDirectiveNoFileComp))
	}
	cmd.Flags().StringSliceVar(&filter.From, "from", nil, "only rows from these nodes")
	cmd.Flags().StringSliceVar(&filter.To, "to", nil, "only rows to these nodes")
}

// checkFilter refuses what would select nothing for being misspelt.
func checkFilter(f proof.Filter) error {
	return errors.Join(oneOf("class", f.Classes, proof.Classes), oneOf("family", f.Families, proof.Families), oneOf("protocol", f.Protocols, proof.Protocols))
}

func oneOf(flag string, given, allowed []string) error {
	for _, value := range given {
		if !slices.Contains(allowed, value) {
			return fmt.Errorf("--%s %s: one of %s", flag, value, strings.Join(allowed, ", "))
		}
	}
	return nil
}

func printReport(w io.Writer, r proof.Report, all bool) {
	fmt.Fprintf(w, "control, encryption off: %d of %d rows delivered, %d frames in clear, %d with a marker that could be read\n\n",
		r.Control.Delivered, r.Control.Rows, r.Control.ClearFrames, r.Control.MarkerFrames)
	if r.Void != "" {
		fmt.Fprintf(w, "VOID: %s\nNothing is proved, neither good nor bad.\n", r.Void)
		return
	}
	if all {
		printRows(w, r.Rows)
	} else {
		printGroups(w, r.Rows)
	}
	printVerdict(w, r)
}

func printRows(w io.Writer, results []proof.Result) {
	rows := [][]string{{"CLASS", "FROM", "TO", "FAMILY", "PROTOCOL", "DELIVERED", "MARKER", "CLEAR", "WIREGUARD", "OK"}}
	for _, r := range results {
		rows = append(rows, []string{r.Class, r.From, r.To, r.Family, r.Protocol, yesNo(r.Delivered),
			fmt.Sprint(r.MarkerFrames), fmt.Sprint(r.ClearFrames), fmt.Sprint(r.WireGuardFrames), yesNo(r.OK)})
	}
	table(w, rows...)
}

// printGroups sums up the pairs of nodes.
func printGroups(w io.Writer, results []proof.Result) {
	type group struct{ class, family, protocol string }
	type sum struct{ rows, delivered, marker, clear, wireguard, ok int }
	var order []group
	sums := map[group]*sum{}
	for _, r := range results {
		g := group{r.Class, r.Family, r.Protocol}
		if sums[g] == nil {
			sums[g] = &sum{}
			order = append(order, g)
		}
		s := sums[g]
		s.rows++
		s.marker, s.clear, s.wireguard = s.marker+r.MarkerFrames, s.clear+r.ClearFrames, s.wireguard+r.WireGuardFrames
		s.delivered += count(r.Delivered)
		s.ok += count(r.OK)
	}
	rows := [][]string{{"CLASS", "FAMILY", "PROTOCOL", "PAIRS", "DELIVERED", "MARKER", "CLEAR", "WIREGUARD", "OK"}}
	for _, g := range order {
		s := sums[g]
		rows = append(rows, []string{g.class, g.family, g.protocol, fmt.Sprint(s.rows), fmt.Sprint(s.delivered),
			fmt.Sprint(s.marker), fmt.Sprint(s.clear), fmt.Sprint(s.wireguard), yesNo(s.ok == s.rows)})
	}
	table(w, rows...)
}

// mostProblems is how many rows the text output explains; -o json has all.
const mostProblems = 10

func printVerdict(w io.Writer, r proof.Report) {
	var ok, delivered, clear int
	var problems []string
	for _, row := range r.Rows {
		ok, delivered, clear = ok+count(row.OK), delivered+count(row.Delivered), clear+row.ClearFrames
		if !row.OK {
			problems = append(problems, fmt.Sprintf("%s: %s", row.Row, row.Problem))
		}
	}
	if r.StrayClearFrames > 0 {
		problems = append(problems, fmt.Sprintf("%d frames in clear between nodes belong to no row, such as %s", r.StrayClearFrames, r.StrayExample))
	}
	printWrong(w, problems)
	verdict := "OK"
	if !r.OK {
		verdict = "FAILED"
	}
	fmt.Fprintf(w, "\n%s: %d of %d rows in order, %d delivered, %d frames in clear between nodes; %d frames captured, none lost, %d of them WireGuard\n",
		verdict, ok, len(r.Rows), delivered, clear+r.StrayClearFrames, r.Frames, r.WireGuardFrames)
}

// printWrong prints the first of them.
func printWrong(w io.Writer, problems []string) {
	if len(problems) > 0 {
		fmt.Fprintln(w, "\nWRONG")
	}
	for i, problem := range problems {
		if i == mostProblems {
			fmt.Fprintf(w, "  and %d more; -o json has all\n", len(problems)-i)
			break
		}
		fmt.Fprintf(w, "  %s\n", problem)
	}
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
