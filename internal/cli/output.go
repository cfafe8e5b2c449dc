package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// output is the form of an answer: "text" or "json".
type output string

func (o *output) addFlag(cmd *cobra.Command) {
	*o = "text"
	cmd.Flags().VarP(o, "output", "o", "text or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
}

// String implements pflag.Value.
func (o *output) String() string { return string(*o) }

// Type implements pflag.Value.
func (o *output) Type() string { return "format" }

// Set implements pflag.Value.
func (o *output) Set(value string) error {
	if value != "text" && value != "json" {
		return fmt.Errorf("%q: text or json", value)
	}
	*o = output(value)
	return nil
}

// print writes the value as indented JSON, or as text by the function.
func (o output) print(w io.Writer, value any, text func(io.Writer)) error {
	if o != "json" {
		text(w)
		return nil
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// printVerdict prints like print; the exit code is 1 when what is printed is not as it should be.
func (o output) printVerdict(w io.Writer, ok bool, value any, text func(io.Writer)) error {
	if err := o.print(w, value, text); err != nil || ok {
		return err
	}
	return exitError{Code: exitFailure}
}

// table prints rows in columns; the first row is the head.
func table(w io.Writer, rows ...[]string) {
	var text strings.Builder
	tw := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(tw, strings.Join(row, "\t")+"\t")
	}
	_ = tw.Flush() // a strings.Builder takes everything
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

// listOr joins the parts, or returns the fallback when there are none.
func listOr(parts []string, fallback string) string {
	if len(parts) == 0 {
		return fallback
	}
	return strings.Join(parts, " ")
}

// byteCount prints a number of bytes in binary units, "1.5 MiB".
func byteCount(n uint64) string {
	const step = 1024
	if n < step {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/step, 0
	for value >= step && unit < 4 {
		value, unit = value/step, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGTP"[unit])
}
