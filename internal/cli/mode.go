package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"warren/internal/api"
	"warren/internal/cluster"
)

func newMode() *cobra.Command {
	cmd := newModeCommand("mode", "Show or change what becomes of packets that are not encrypted", (*api.Client).Mode)
	cmd.Long = `Show the node's mode, or change it while the agent runs:

  observe     change nothing on the wire, only count
  permissive  encrypt towards confirmed peers; the rest passes in clear and is counted
  strict      drop what cannot be encrypted, in both directions

A mode that was set counts on this node, also after a restart and a reboot, until it is reset; then
the one of the configuration counts. Without a command it is shown.`
	cmd.Example = `  warren mode
  warren mode set strict
  warren mode reset`
	cmd.AddCommand(newModeSet(), newModeCommand("reset", "Go back to the mode of the configuration", (*api.Client).ResetMode))
	return cmd
}

func newModeSet() *cobra.Command {
	var mode string
	cmd := newModeCommand("set MODE", "Change the mode of this node", func(c *api.Client, ctx context.Context) (api.Mode, error) {
		return c.SetMode(ctx, mode)
	})
	modes := []string{cluster.ModeObserve.String(), cluster.ModePermissive.String(), cluster.ModeStrict.String()}
	cmd.ValidArgs = modes
	cmd.Args = usage(cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs))
	cmd.PreRun = func(_ *cobra.Command, args []string) { mode = args[0] }
	return cmd
}

// newModeCommand asks something that is answered with the mode.
func newModeCommand(use, short string, ask func(*api.Client, context.Context) (api.Mode, error)) *cobra.Command {
	var q query
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			mode, err := ask(q.client(), cmd.Context())
			if err != nil {
				return err
			}
			return q.output.print(cmd.OutOrStdout(), mode, func(w io.Writer) { fmt.Fprintln(w, modeLine(mode)) })
		},
	}
	q.addFlags(cmd)
	return cmd
}

func modeLine(m api.Mode) string {
	if m.Source == api.ModeConfigured {
		return m.Mode + " (configuration)"
	}
	return fmt.Sprintf("%s (by warren mode set; the configuration says %s)", m.Mode, m.Configured)
}
