package cli

import "github.com/spf13/cobra"

func newPause() *cobra.Command {
	return &cobra.Command{
		Use:   "pause",
		Short: "Do nothing until told to end, as the container of a pod whose work is done",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			<-cmd.Context().Done()
			return nil
		},
	}
}
