package cli

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/spf13/cobra"

	"warren/internal/lab"
	"warren/internal/lab/control"
)

// kubeFlags say whether a lab has a Kubernetes.
type kubeFlags struct {
	kube     bool
	binaries string
}

func (f *kubeFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.kube, "kube", false, "with a real Kubernetes API server on n1, Node objects, and pods attached by CNI plugins")
	cmd.Flags().StringVar(&f.binaries, "kube-bin", "", "folder of scripts/kubetools.sh (default $"+control.BinariesVariable+", or .cache/kube here or above)")
}

// options returns nil for a lab without Kubernetes.
func (f *kubeFlags) options() (*lab.KubeOptions, error) {
	if !f.kube {
		return nil, nil
	}
	var options lab.KubeOptions
	err := resolveBinary(&options.Forwarder)
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	options.Binaries, err = control.FindBinaries(f.binaries)
	return &options, err
}

// forwardedSocket is the first file that a process gets besides the standard streams.
const forwardedSocket = 3

// newLabForward is run by `lab up --kube` on the node with the API server; it is no command for people.
func newLabForward() *cobra.Command {
	return &cobra.Command{
		Use:    "forward ADDRESS",
		Short:  "Carry connections of a socket that this process was given to an address",
		Hidden: true,
		Args:   usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := os.NewFile(forwardedSocket, "socket")
			listener, err := net.FileListener(file)
			if err != nil {
				return exitError{exitUsage, fmt.Errorf("there is no socket to carry from: %w", err)}
			}
			_ = file.Close()
			var dialer net.Dialer
			return control.Forward(cmd.Context(), listener, func(ctx context.Context) (net.Conn, error) {
				return dialer.DialContext(ctx, "tcp", args[0])
			})
		},
	}
}
