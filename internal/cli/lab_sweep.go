package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"warren/internal/lab/sweep"
)

func newLabSweep() *cobra.Command {
	var flags labFlags
	var form output
	var sizes string
	var all bool
	var options sweep.Options
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Send packets of every size through a lab and say which are lost silently",
		Long: `Send one packet of each size for every ordered pair of nodes × class × family × protocol and have it sent
back: UDP and ICMP echo with and without "don't fragment", and TCP writes. A size counts the whole IP packet,
headers included; of TCP, the bytes of one write. What is lost is sent again a few times before it counts.

With "don't fragment" packets are sent as applications do that look for the path's MTU themselves
(IP_PMTUDISC_DO): a size that is refused (EMSGSIZE, "message too long") is in order when the size that the
kernel gives instead, of the device or of the path, is delivered.

The exit code is 0 when every size was delivered or refused so, and 1 otherwise.`,
		Example: `  warren lab sweep
  warren lab sweep --sizes 1200-1600,4000,65535 --from n1 --to n2
  warren lab sweep --class pod-pod --protocol udp --df yes --all
  warren lab sweep -o json | jq '.rows[] | select(.ok | not)'`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			parsed, err := sweep.ParseSizes(sizes)
			if err := errors.Join(err, checkFilter(options.Filter), oneOf("df", options.DF, []string{"yes", "no"})); err != nil {
				return exitError{exitUsage, err}
			}
			l, err := flags.open(cmd)
			if err != nil {
				return err
			}
			options.Sizes = parsed
			options.Progress = func(step string) { fmt.Fprintln(cmd.ErrOrStderr(), step) }
			report, err := sweep.Run(cmd.Context(), l, options)
			if err != nil {
				return err
			}
			return form.printVerdict(cmd.OutOrStdout(), report.OK, report, func(w io.Writer) { printSweep(w, report, all) })
		},
	}
	flags.addName(cmd)
	form.addFlag(cmd)
	addFilter(cmd, &options.Filter)
	cmd.Flags().BoolVar(&all, "all", false, "print every row, not only groups and what is wrong")
	cmd.Flags().StringVar(&sizes, "sizes", sweep.DefaultSizes, "sizes in bytes: numbers, ranges, ranges with a step")
	cmd.Flags().StringSliceVar(&options.DF, "df", nil, `only datagrams with ("yes") or without ("no") "don't fragment"`)
	_ = cmd.RegisterFlagCompletionFunc("df", cobra.FixedCompletions([]string{"yes", "no"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func printSweep(w io.Writer, r sweep.Report, all bool) {
	if all {
		printSweepRows(w, r.Rows)
	} else {
		printSweepGroups(w, r.Rows)
	}
	printSweepVerdict(w, r)
}

// sweepCounts are how many sizes ended how.
type sweepCounts struct {
	rows, ok, delivered, told, lost int
	mtus                            []string // that senders were told, each once
}

func (c *sweepCounts) add(r sweep.Result) {
	c.rows, c.ok = c.rows+1, c.ok+count(r.OK)
	c.delivered, c.lost = c.delivered+len(r.Delivered), c.lost+len(r.Lost)+len(r.Untried)
	for _, told := range r.Told {
		c.told += len(told.Sizes)
		if mtu := fmt.Sprint(told.MTU); !strings.Contains(" "+strings.Join(c.mtus, " ")+" ", " "+mtu+" ") {
			c.mtus = append(c.mtus, mtu)
		}
	}
}

func (c *sweepCounts) columns() []string {
	mtus := "-"
	if len(c.mtus) > 0 {
		mtus = strings.Join(c.mtus, " ")
	}
	return []string{fmt.Sprint(c.delivered), fmt.Sprint(c.told), mtus, fmt.Sprint(c.lost), yesNo(c.ok == c.rows)}
}

var sweepColumns = []string{"DELIVERED", "TOLD", "MTU", "LOST", "OK"}

func printSweepRows(w io.Writer, results []sweep.Result) {
	rows := [][]string{append([]string{"CLASS", "FROM", "TO", "FAMILY", "PROTOCOL", "DF"}, sweepColumns...)}
	for _, r := range results {
		var c sweepCounts
		c.add(r)
		rows = append(rows, append([]string{r.Class, r.From, r.To, r.Family, r.Protocol, yesNo(r.DF)}, c.columns()...))
	}
	table(w, rows...)
}

// printSweepGroups sums up the pairs of nodes.
func printSweepGroups(w io.Writer, results []sweep.Result) {
	type group struct {
		class, family, protocol string
		df                      bool
	}
	var order []group
	sums := map[group]*sweepCounts{}
	for _, r := range results {
		g := group{r.Class, r.Family, r.Protocol, r.DF}
		if sums[g] == nil {
			sums[g] = &sweepCounts{}
			order = append(order, g)
		}
		sums[g].add(r)
	}
	rows := [][]string{append([]string{"CLASS", "FAMILY", "PROTOCOL", "DF", "PAIRS"}, sweepColumns...)}
	for _, g := range order {
		rows = append(rows, append([]string{g.class, g.family, g.protocol, yesNo(g.df), fmt.Sprint(sums[g].rows)}, sums[g].columns()...))
	}
	table(w, rows...)
}

func printSweepVerdict(w io.Writer, r sweep.Report) {
	var sum sweepCounts
	var problems []string
	for _, row := range r.Rows {
		sum.add(row)
		if !row.OK {
			problems = append(problems, fmt.Sprintf("%s, DF %s: %s", row.Row, yesNo(row.DF), row.Problem))
		}
	}
	printWrong(w, problems)
	verdict := "OK"
	if !r.OK {
		verdict = "FAILED"
	}
	fmt.Fprintf(w, "\n%s: %d of %d rows in order, %d sizes each; %d packets delivered, %d refused with a size that was delivered, %d lost silently\n",
		verdict, sum.ok, sum.rows, len(r.Sizes), sum.delivered, sum.told, sum.lost)
}
