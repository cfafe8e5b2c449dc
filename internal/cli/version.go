package cli

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
)

// version is set by the linker (Makefile).
var version = "dev"

type versionInfo struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersion() *cobra.Command {
	var form output
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			info := versionInfo{version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return form.print(cmd.OutOrStdout(), info, func(w io.Writer) {
				fmt.Fprintf(w, "warren %s (%s, %s)\n", info.Version, info.Go, info.Platform)
			})
		},
	}
	form.addFlag(cmd)
	return cmd
}
